"""Entry point of `python -m natsd`: runs the daemon's command line."""

import sys

from natsd.cli import main

if __name__ == "__main__":
    sys.exit(main())
