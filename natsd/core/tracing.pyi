from typing import Final

NO_ECHO: Final = "Not delivered because of no echo"
CLIENT_CLOSED: Final = "Not delivered because client is closed"
AUTO_UNSUBSCRIBED: Final = "Not delivered because auto-unsubscribe exceeded"
NOT_STALLED: Final = "Not delivered because fast producer not stalled and consumer is slow"

class TracedMessage:
    trace: object

def trace_headers(block: bytes) -> list[tuple[bytes, bytes]]: ...
def is_reserved(subject: str | bytes) -> bool: ...
def is_asked(block: bytes, *, parents: bool = False) -> bool: ...
