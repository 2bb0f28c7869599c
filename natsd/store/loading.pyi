from natsd.store.scan import Scan
from natsd.store.subject_index import SubjectIndex

def fill_slots(scan: Scan, subjects: SubjectIndex) -> None: ...
