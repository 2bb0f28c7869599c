"""Whether the tests run under AddressSanitizer, as `make asan` has it."""

import os
from typing import Final

IS_ASAN: Final = "libasan" in os.environ.get("LD_PRELOAD", "")
