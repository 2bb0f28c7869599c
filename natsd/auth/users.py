"""The users of the settings, by name and by nkey, with the account that each belongs to.

A user's permissions are compiled at its first login, and users with equal permissions share the
compiled rules: ten thousand users cost a start nothing but their entries.

Source: nats-server's `configureAuthorization` and `buildNkeysAndUsersFromOptions` (server/auth.go).
"""

from collections.abc import Iterable, Iterator

from natsd.auth.permissions import compile_permissions
from natsd.auth.verdict import Verdict
from natsd.config import Options, OptionsError
from natsd.config.auth_options import PermissionsOptions, UserOptions
from natsd.core.quoting import quoted
from natsd.core.routing import PermissionRules


class User:
    """A configured user."""

    __slots__ = ("_verdict", "account", "options", "permissions")

    def __init__(
        self, options: UserOptions, account: str, permissions: PermissionsOptions | None
    ) -> None:
        """Create a user of an account; `permissions` are its own, or the default ones."""
        self.options = options
        self.account = account
        self.permissions = permissions
        self._verdict: Verdict | None = None

    def verdict(self, rules: dict[PermissionsOptions, PermissionRules]) -> Verdict:
        """Return the verdict that accepts this user; `rules` are those compiled so far."""
        if self._verdict is None:
            compiled = None
            if self.permissions is not None:
                compiled = rules.get(self.permissions)
                if compiled is None:
                    compiled = rules[self.permissions] = compile_permissions(self.permissions)
            nkey, name = self.options.nkey, self.options.user
            label = f"nkey:{nkey}" if nkey else f"user:{name}"
            self._verdict = Verdict(self.account, compiled, nkey or name, label)
        return self._verdict

    def may_use(self, connection_type: str) -> bool:
        """Return whether the user may log in over a connection of that type."""
        allowed = self.options.allowed_connection_types
        return not allowed or connection_type in allowed


class UserTable:
    """All configured users. Raises OptionsError if two of them have one name or nkey."""

    def __init__(self, options: Options, default_account: str) -> None:
        """Read the users of `authorization` into the default account, the others into theirs."""
        self.by_name: dict[str, User] = {}
        self.by_nkey: dict[str, User] = {}
        self._rules: dict[PermissionsOptions, PermissionRules] = {}
        login = options.authorization
        self._add(login.users, default_account, login.default_permissions)
        for name, account in options.accounts.items():
            self._add(account.users, name, account.default_permissions)

    def _add(
        self, users: Iterable[UserOptions], account: str, default: PermissionsOptions | None
    ) -> None:
        for options in users:
            user = User(options, account, options.permissions or default)
            if options.nkey:
                if self.by_nkey.setdefault(options.nkey, user) is not user:
                    raise OptionsError(f"Duplicate nkey {quoted(options.nkey)} detected")
            elif self.by_name.setdefault(options.user, user) is not user:
                raise OptionsError(f"Duplicate user {quoted(options.user)} detected")

    def accept(self, user: User) -> Verdict:
        """Return the verdict that accepts a user."""
        return user.verdict(self._rules)

    def stored_passwords(self) -> Iterator[str]:
        """Yield the passwords and hashes of all users."""
        return (user.options.password for user in self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name) + len(self.by_nkey)
