from natsd.store.block import MsgBlock

def copy_messages(
    source: MsgBlock, into: MsgBlock, first: int, last: int, bytes_max: int
) -> int: ...
