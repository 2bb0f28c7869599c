"""What `$SYS.REQ.USER.INFO` tells a user about its permissions and the end of its login.

Source: nats-server's `UserInfo` and `publicPermissions` (server/client.go).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from natsd.auth import Verdict
from natsd.core.wall_time import SECOND_NS

if TYPE_CHECKING:
    from natsd.core.routing import PermissionRules


def user_facts(verdict: Verdict | None, now_ns: int) -> dict[str, Any]:
    """Return the members about a user that exist; `now_ns` is Unix time."""
    if verdict is None:
        return {}
    facts: dict[str, Any] = {}
    if verdict.jwt is not None and verdict.jwt.name:
        facts["user_name"] = verdict.jwt.name
    if verdict.permissions is not None:
        facts["permissions"] = _permissions(verdict.permissions)
    if verdict.expires_ns:
        left_ns = verdict.expires_ns - now_ns
        facts["expires"] = left_ns - left_ns % SECOND_NS
    return facts


def _permissions(rules: "PermissionRules") -> dict[str, Any]:
    told: dict[str, Any] = {
        "publish": _rules(rules.publish_allow, rules.publish_deny),
        "subscribe": _rules(rules.subscribe_allow, rules.subscribe_deny),
    }
    if rules.responses_max or rules.responses_ttl_ns:
        told["responses"] = {"max": rules.responses_max, "ttl": rules.responses_ttl_ns}
    return told


def _rules(allow: Iterable[str] | None, deny: Iterable[str]) -> dict[str, Any]:
    told = {"allow": allow, "deny": deny}
    return {name: subjects for name, subjects in told.items() if subjects}
