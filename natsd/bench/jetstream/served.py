"""`python -m natsd.bench.jetstream.served {…}`: the daemon with any settings, written in JSON.

Not all have a flag. nats-server takes them from a configuration file.
"""

import json
import sys

from natsd.cli.daemon import run
from natsd.config import make_options

if __name__ == "__main__":
    sys.exit(run(make_options(**json.loads(sys.argv[1]))))
