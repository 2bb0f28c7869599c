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

VERSION_TEXT = f"nats-server: v{NATS_VERSION}\nnatsd: v{VERSION}"
"""What `natsd -v` prints: harnesses read the first line, or the first x.y.z, as the NATS level."""
