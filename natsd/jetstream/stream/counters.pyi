from natsd.store.block import MsgBlock

class Counters:
    wanted: MsgBlock

    def close(self) -> None: ...
    def sourced(self, subject: bytes, headers: bytes, data: bytes) -> tuple[bytes, ...]: ...
