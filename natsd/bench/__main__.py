"""`python -m natsd.bench` is `natsd bench`."""

import sys

from natsd.bench import main

if __name__ == "__main__":
    sys.exit(main())
