"""The directory of a server's accounts, by name.

- It has two accounts from its beginning: the default account, to which a client belongs that named
  none, and the system account. Which names they have is the directory's business alone: everything
  else asks for `default`, `system`, or `Account.is_system`.
- A server may have no system account (`has_system`): then `system` is an account that nobody can
  be in, and that the mapping lacks.
- `find` may create an account, if `may_create` allows its name: so accounts can come from a
  resolver. A name that could lead out of the store's directory is never allowed. The accounts that
  were created so are never more than `created_max`; beyond that `find` answers as if there were no
  such account.
- Those that serve accounts (monitoring, JetStream) learn of each new one through `on_added`, and
  of each that is removed through `on_removed`.
"""

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Final

from natsd.accounts.account import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Account

_SEPARATORS: Final = frozenset("/\\ \t\r\n\0")
CREATED_MAX: Final = 65_536
"""Accounts that a directory creates on demand, unless it is told otherwise."""

Added = Callable[[Account], object]
"""Called with each account that is created on demand."""
Removed = Callable[[Account], object]
"""Called with each account that is removed, before it is closed."""


def no_name(_name: str) -> bool:
    """Return that an account of that name must not be created."""
    return False


def is_account_name(name: str) -> bool:
    """Return whether an account may have that name, which is also the name of its directory."""
    return name not in {"", ".", ".."} and _SEPARATORS.isdisjoint(name)


class AccountDirectory(Mapping[str, Account]):
    """All accounts of one server; a mapping of those that exist now."""

    def __init__(
        self,
        make: Callable[[str, bool], Account],
        *,
        default: str = GLOBAL_ACCOUNT,
        system: str = "",
        may_create: Callable[[str], bool] = no_name,
        created_max: int = CREATED_MAX,
        has_system: bool = True,
    ) -> None:
        """Create the directory with its first two accounts.

        `make` returns a new account; it gets the name, and whether it is the system account. An
        empty `system` stands for the usual name.
        Without `has_system` no client can be in the system account, and the mapping lacks it.
        """
        self._make = make
        self._may_create = may_create
        self._creatable = created_max
        self._on_demand: set[str] = set()
        self._listeners: list[Added] = []
        system = system or SYSTEM_ACCOUNT
        self._removal_listeners: list[Removed] = []
        self.default = make(default, False)
        self.system = make(system, True)
        self.has_system = has_system
        self._accounts = {default: self.default}
        if has_system:
            self._accounts[system] = self.system

    def find(self, name: str) -> Account | None:
        """Return the account of that name; None: there is none, and it must not be created."""
        account = self._accounts.get(name)
        if account is not None or self._creatable <= 0 or not is_account_name(name):
            return account
        if self._may_create(name):
            self._creatable -= 1
            self._on_demand.add(name)
            account = self._accounts[name] = self._make(name, False)
            for added in tuple(self._listeners):
                added(account)
        return account

    def add(self, name: str) -> Account:
        """Return the account of that name, which is created unless it exists."""
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = self._make(name, False)
            for added in tuple(self._listeners):
                added(account)
        return account

    def on_added(self, added: Added) -> None:
        """Call `added` with each account that is created from now on."""
        self._listeners.append(added)

    def no_longer(self, added: Added) -> None:
        """Undo `on_added`, if it was called."""
        if added in self._listeners:
            self._listeners.remove(added)

    def remove(self, name: str) -> None:
        """Remove an account and close it; its clients must have been closed before.

        The default account and the system account stay. Does nothing if there is no such account.
        """
        account = self._accounts.get(name)
        if account is None or account is self.default or account is self.system:
            return
        del self._accounts[name]
        if name in self._on_demand:
            self._on_demand.remove(name)
            self._creatable += 1
        for removed in tuple(self._removal_listeners):
            removed(account)
        account.close()

    def on_removed(self, removed: Removed) -> None:
        """Call `removed` with each account that is removed from now on."""
        self._removal_listeners.append(removed)

    def no_longer_removed(self, removed: Removed) -> None:
        """Undo `on_removed`, if it was called."""
        if removed in self._removal_listeners:
            self._removal_listeners.remove(removed)

    def close(self) -> None:
        """Close all accounts."""
        for account in {*self._accounts.values(), self.system}:
            account.close()

    def __getitem__(self, name: str) -> Account:
        return self._accounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._accounts)

    def __len__(self) -> int:
        return len(self._accounts)

    def values(self) -> ValuesView[Account]:
        """Return the accounts; the view of `Mapping` would look each one up by its name."""
        return self._accounts.values()

    def items(self) -> ItemsView[str, Account]:
        """Return the names and the accounts."""
        return self._accounts.items()
