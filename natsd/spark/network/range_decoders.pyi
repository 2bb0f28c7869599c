from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.wire.frames import FrameHandler

class RangeDecoder(FrameHandler):
    """Base of both parsers: which rows are wanted, and what was received.

    Rows begin behind the sequence `after` and end with `upto`; `start_ns` (inclusive) and `end_ns`
    (exclusive) are ns since the epoch.
    """

    batch: MessageBatch
    last: int
    upto: int
    late: MessageBatch | None
    start_ns: int
    end_ns: int
    stop_at_frames: int
    frames: int
    row_bytes: int
    missing_from: int
    pending: int
    status: int
    status_block: bytes
    is_over: bool

    def __init__(
        self,
        batch: MessageBatch,
        after: int,
        upto: int,
        start_ns: int | None = None,
        end_ns: int | None = None,
    ) -> None: ...
    @property
    def is_complete(self) -> bool: ...
    def status_text(self) -> str: ...
    def status_header(self, name: str) -> int | None: ...
    def forget_status(self) -> None: ...

class DirectDecoder(RangeDecoder):
    """Parser of the answers to one batched DIRECT.GET."""

class PullDecoder(RangeDecoder):
    """Parser of the deliveries of a pull consumer without acknowledgements."""

    consumer_sequence: int
    is_out_of_order: bool
    is_bare: bool
