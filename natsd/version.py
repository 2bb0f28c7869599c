"""Version numbers: natsd's own, and that of the nats-server release whose behaviour natsd matches.

Clients and test harnesses choose features by the nats-server version. Therefore `INFO`, `/varz` and
the first line of `natsd -v` show the nats-server version, with natsd's own version beside it.
"""

import sys

VERSION = "0.1.0"
NATS_VERSION = "2.14.5"
PROTOCOL_VERSION = 1
API_LEVEL = 4  # JetStream API level (ADR-44)
RUNTIME_VERSION = "python" + ".".join(
    map(str, sys.version_info[:3])
)  # nats-server puts its Go version here, such as go1.26

FEATURE_FLAGS = {"js_ack_fc_v2": False, "js_raft_delete_range": False}
"""nats-server's optional features by name; False: natsd does not have the feature."""

NATS_VERSION_TEXT = f"nats-server: v{NATS_VERSION}"
"""Output of `-v` when natsd is installed under the name `nats-server`."""
VERSION_TEXT = f"{NATS_VERSION_TEXT}\nnatsd: v{VERSION}"
"""Output of `natsd -v`. Test harnesses read the first line, or the first x.y.z, as the nats-server
version."""
