from natsd.core.subscription import Sink
from natsd.store.filter import Filter

class ReaderFilters(Sink):
    @property
    def filter(self) -> Filter | None: ...

class SlotReaders: ...
