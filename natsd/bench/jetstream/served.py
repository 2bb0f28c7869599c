"""`python -m natsd.bench.jetstream.served {…}`: the natsd daemon, with its settings as JSON.

Not all settings have a command-line flag. nats-server gets such settings from a configuration file.
"""

import json
import sys

from natsd.cli.daemon import run
from natsd.config import make_options

if __name__ == "__main__":
    sys.exit(run(make_options(**json.loads(sys.argv[1]))))
