from natsd.store.log import MessageLog
from natsd.store.store import StoreState

def visible_state(log: MessageLog, visible: int, *, with_deleted: bool = False) -> StoreState: ...
