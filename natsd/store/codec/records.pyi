HEADER_BYTES: int
OVERHEAD_BYTES: int
KIND_MESSAGE: int
KIND_SKIP: int
KIND_TOMBSTONES: int
KIND_MARK: int
FLAG_ERASED: int
FLAG_VOID_PREVIOUS: int
FLAG_CLOSING: int

class StoredMessage:
    def __init__(
        self,
        sequence: int,
        subject: str,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        expires_ns: int = 0,
    ) -> None: ...
    @property
    def sequence(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def headers(self) -> bytes | None: ...
    @property
    def data(self) -> bytes: ...
    @property
    def time_ns(self) -> int: ...
    @property
    def expires_ns(self) -> int: ...

def checksum(data: bytes, seed: int = 0) -> int: ...
def encode(
    seed: int,
    sequence: int,
    subject: str | bytes,
    headers: bytes | None,
    data: bytes,
    time_ns: int,
    expires_ns: int = 0,
    kind: int = ...,
    flags: int = 0,
) -> bytes: ...
def erased(seed: int, sequence: int, noise: bytes) -> bytes: ...
def header_is_whole(data: bytes, seed: int) -> bool: ...
def decode(data: bytes, seed: int) -> StoredMessage | None: ...
def piece_bounds(records: memoryview, piece_bytes: int) -> list[tuple[int, int]]: ...
