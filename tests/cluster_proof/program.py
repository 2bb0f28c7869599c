"""The server program under test: natsd, or the nats-server that NATSD_TEST_SERVER names.

`REPLICATED` marks tests that need replicated streams. It asks natsd whether it accepts `jetstream`
together with `cluster`; as soon as it does, these tests run.
"""

import tempfile
from pathlib import Path
from typing import Final

import pytest

from natsd.config import OptionsError
from natsd.config.load import load_options
from natsd.local_cluster.process import NATSD
from tests.clients.target import GO_SERVER
from tests.cluster_proof.servers import Server

PROGRAM: Final = (GO_SERVER,) if GO_SERVER else NATSD


def _refusal() -> str:
    """Return why the program does not run JetStream in a cluster; empty: it does."""
    if GO_SERVER:
        return ""
    with tempfile.TemporaryDirectory() as directory:
        server = Server("n1", Path(directory), (4222, 6222, 8222))
        server.write_config([6223, 6224])
        try:
            load_options(server.config)
        except OptionsError as error:
            return str(error)
    return ""


REFUSAL: Final = _refusal()
REPLICATED: Final = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
