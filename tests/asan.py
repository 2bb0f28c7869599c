"""Tells whether the tests run under AddressSanitizer, as in `make asan`."""

import os
from typing import Final

IS_ASAN: Final = "libasan" in os.environ.get("LD_PRELOAD", "")
