from natsd.core.subscription import Sink
from natsd.jetstream.stream.core import Reader
from natsd.store.consumer_tracker import ConsumerTracker

class Intake(Reader):
    # Subscribe the sinks to these subjects. `ack_sink`: `$JS.ACK.<stream>.<consumer>.>` and
    # `$JS.ACK.<domain|_>.<hash>.<stream>.<consumer>.>`. `pull_sink`:
    # `$JS.API.CONSUMER.MSG.NEXT.<s>.<c>`, for a push consumer too (it answers 409).
    # `flow_control_sink`: `$JS.FC.<stream>.<consumer>.*` and
    # `$JS.FC.<domain|_>.<hash>.<stream>.<consumer>.>`.
    @property
    def ack_sink(self) -> Sink: ...
    @property
    def pull_sink(self) -> Sink: ...
    @property
    def flow_control_sink(self) -> Sink: ...
    @property
    def tracker(self) -> ConsumerTracker: ...
    @property
    def is_stopped(self) -> bool: ...
