from natsd.jetstream.schedules.delays import Delays
from natsd.jetstream.schedules.schedules import Schedules

class Scheduled:
    schedules: Schedules | None
    delays: Delays | None
