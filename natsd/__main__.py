"""`python -m natsd` is the daemon."""

import sys

from natsd.cli import main

if __name__ == "__main__":
    sys.exit(main())
