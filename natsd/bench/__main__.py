"""Entry point: `python -m natsd.bench` does the same as `natsd bench`."""

import sys

from natsd.bench import main

if __name__ == "__main__":
    sys.exit(main())
