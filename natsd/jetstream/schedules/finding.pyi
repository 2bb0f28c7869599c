from natsd.store.log import MessageLog

Found = tuple[int, bytes, bytes, int]

OF_SCHEDULES: int
OF_DELAYS: int

def find_messages(
    log: MessageLog, sequence: int, upto: int, wanted: int, found: list[Found]
) -> tuple[int, int]: ...
