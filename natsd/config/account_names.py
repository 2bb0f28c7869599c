"""Names of accounts that have a meaning without a setting."""

from typing import Final

GLOBAL: Final = "$G"
"""Account of the clients that no setting gives another account."""

SYSTEM: Final = "$SYS"
"""The system account, unless a setting names another one."""
