class FrameHandler:
    """Handler that takes all messages of one subscription, in compiled code."""

class ReceivedMessage:
    """One message that owns its bytes."""

    sid: int
    subject: str
    reply: str
    headers: bytes
    data: bytes

    @property
    def status(self) -> int: ...
    @property
    def description(self) -> str: ...
    def header(self, name: str) -> str | None: ...

class Control:
    """A control line: its verb in capitals, and the text behind the verb."""

    verb: str
    text: str

class FrameParser:
    """Parser of the bytes that one connection receives; `frames` counts its messages."""

    frames: int

    def __init__(self, room_bytes: int = 1 << 20, frame_bytes_max: int = 80 << 20) -> None: ...
    def room(self) -> memoryview: ...
    def received(self, count: int) -> None: ...
    def feed(self, data: bytes) -> None: ...
    def next(self) -> ReceivedMessage | Control | FrameHandler | None: ...
    def attach(self, sid: int, handler: FrameHandler) -> None: ...
    def detach(self, sid: int) -> None: ...
    def clear(self) -> None: ...
