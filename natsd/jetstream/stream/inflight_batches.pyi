class InflightBatches:
    per_stream_max: int
    total_max: int
    msgs_max: int
    staged_bytes_max: int
    timeout_ns: int
    count: int
    staged_bytes: int

    def __init__(
        self,
        *,
        per_stream_max: int,
        total_max: int,
        msgs_max: int,
        timeout_ns: int,
        staged_bytes_max: int = 0,
    ) -> None: ...
