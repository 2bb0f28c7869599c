"""Who we are, and which NATS server we behave like.

Clients and test harnesses decide by the NATS level which features to use, so that is what `INFO`,
`/varz` and the first line of `natsd -v` show; natsd's own version stands beside it.
"""

import sys

VERSION = "0.1.0"
NATS_VERSION = "2.14.5"
PROTOCOL_VERSION = 1
API_LEVEL = 4  # of JetStream
RUNTIME_VERSION = "python" + ".".join(
    map(str, sys.version_info[:3])
)  # where Go's server says go1.26

FEATURE_FLAGS = {"js_ack_fc_v2": False, "js_raft_delete_range": False}
"""nats-server's optional features: natsd has neither."""

NATS_VERSION_TEXT = f"nats-server: v{NATS_VERSION}"
"""What `nats-server -v` prints, which may be natsd under that name."""
VERSION_TEXT = f"{NATS_VERSION_TEXT}\nnatsd: v{VERSION}"
"""What `natsd -v` prints: harnesses read the first line, or the first x.y.z, as the NATS level."""
