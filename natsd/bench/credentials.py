"""The JWTs of a server in operator mode, and the access of its user.

The same ones come out in every process, so that a load process needs no file.
"""

from functools import cache
from typing import Any

from natsd.bench.access import Access
from natsd.testing.jwts import Operator


@cache
def operator_settings() -> dict[str, Any]:
    """Return the settings of a server in operator mode, with one account."""
    operator = Operator()
    account = operator.account("bench")
    return {
        "operator": operator.jwt(),
        "resolver": "MEMORY",
        "resolver_preload": {account.name: account.jwt},
    }


@cache
def user() -> Access:
    """Return the access of the account's user."""
    user = Operator().account("bench").user("bench")
    return Access(jwt=user.jwt, seed=user.key.seed)
