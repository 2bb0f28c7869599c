from natsd.jetstream.stream.settings import Mapping

class SubjectTransform:
    source: bytes
    destination: bytes

    def __init__(self, mapping: Mapping) -> None: ...
    def map(self, subject: str | bytes) -> str | None: ...
