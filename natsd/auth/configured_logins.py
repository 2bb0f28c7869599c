"""The logins that the settings name: users, nkeys, certificates, one token, or one user.

    proxy's signature ─▶ nkey ─▶ certificate (verify_and_map) or user name ─▶ token or single user
                         │       │                                           │
                         signature of the nonce   password                   password

- The first kind of login that the settings have and that the client's CONNECT names decides. A
  client without credentials is the `no_auth_user`, if there is one.
- A wrong name takes as long as a wrong password (passwords.py).
- If only the system account has users, clients without credentials are in the default account, as
  in nats-server.

Source: nats-server's `processClientOrLeafAuthentication` (server/auth.go) and `configureAccounts`
(server/server.go).
"""

from collections.abc import Awaitable
from dataclasses import replace

from natsd.auth.nkeys import decode_signature, verify
from natsd.auth.passwords import Passwords, bcrypt_cost
from natsd.auth.proxies import Proxies
from natsd.auth.users import User, UserTable
from natsd.auth.verdict import REFUSED, ConnectingClient, Credentials, Verdict, refused
from natsd.config import Options, OptionsError
from natsd.config.secret_texts import REDACTED
from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason


class ConfiguredLogins:
    """Decides by the users, the token, or the single user of the settings."""

    is_required = True

    def __init__(
        self,
        options: Options,
        default_account: str,
        system_account: str,
        passwords: Passwords | None = None,
    ) -> None:
        """Read the users. Raises OptionsError if they contradict each other.

        `passwords` are those of the settings before a reload, which remember right answers.
        """
        login = options.authorization
        self.users = UserTable(options, default_account)
        self.passwords = passwords or Passwords()
        self._login = login
        self._no_auth_user = options.no_auth_user
        self._proxies = Proxies(options.proxies.trusted if options.proxies else ())
        self._maps_certificates = options.tls is not None and options.tls.verify_and_map
        self._anonymous_accepted = Verdict(default_account)
        self._token_accepted = Verdict(default_account, user=REDACTED, label="token")
        self._user_accepted = Verdict(default_account, user=login.user, label=f"user:{login.user}")
        self._accepts_anonymous = (
            not login.is_required
            and not options.no_auth_user
            and all(
                name == system_account or not (account.users or name != default_account)
                for name, account in options.accounts.items()
            )
        )
        _check_no_auth_user(options.no_auth_user, self.users)
        self.passwords.expect((*self.users.stored_passwords(), login.password, login.token))

    @property
    def needs_nonce(self) -> bool:
        """Whether clients or proxies sign a nonce."""
        return bool(self.users.by_nkey or self._proxies.trusted)

    @property
    def needs_credentials(self) -> bool:
        """Whether a client without credentials is refused."""
        return not self._no_auth_user

    @property
    def has_plain_passwords(self) -> bool:
        """Whether a password of the settings is no hash; users of certificates need none."""
        stored = list(self.users.stored_passwords())
        if self._login.password:
            stored.append(self._login.password)
        needed = (each for each in stored if each or not self._maps_certificates)
        return any(not bcrypt_cost(password) for password in needed)

    def has_lost(self, accepted: Verdict) -> bool:
        """Return whether the user of an earlier verdict is gone from the settings.

        That needs no hash. False if it cannot be told without the client's CONNECT: one without
        credentials may be another user now.
        """
        user = accepted.user
        if self._maps_certificates or self._no_auth_user or self._accepts_anonymous:
            return False
        if not user or accepted.jwt is not None:
            return False
        if user == REDACTED:
            return not self._login.token
        users = self.users
        return user not in users.by_name and user not in users.by_nkey and user != self._login.user

    def authenticate(
        self, client: ConnectingClient, connect: Credentials
    ) -> Verdict | Awaitable[Verdict]:
        """Return whether, and as what, a client is accepted, or an awaitable of that."""
        proxy = self._proxies.signer(client.nonce, connect.proxy_sig)
        if proxy is None:
            return refused("proxy is not trusted", ClosedReason.PROXY_NOT_TRUSTED)
        verdict = self._authenticate(client, connect, proxy)
        if not proxy:
            return verdict
        if isinstance(verdict, Verdict):
            return replace(verdict, proxy_key=proxy)
        return _with_proxy(verdict, proxy)

    def _authenticate(
        self, client: ConnectingClient, connect: Credentials, proxy: str
    ) -> Verdict | Awaitable[Verdict]:
        users = self.users
        is_anonymous = not (connect.user or connect.password or connect.auth_token)
        if users.by_nkey:
            nkey = connect.nkey
            if not nkey and is_anonymous and self._no_auth_user in users.by_nkey:
                nkey = self._no_auth_user
            if nkey:
                return self._by_nkey(users.by_nkey.get(nkey), client, connect, proxy)
        if users.by_name:
            if self._maps_certificates:
                return self._by_certificate(client, connect, proxy)
            if is_anonymous and self._no_auth_user in users.by_name:
                user = users.by_name[self._no_auth_user]
                return self._refusal(user, client, proxy) or users.accept(user)
            if connect.user:
                return self._by_name(users.by_name.get(connect.user), client, connect, proxy)
            if self._accepts_anonymous and is_anonymous:
                return self._anonymous_accepted
        return self._by_single_login(client, connect, proxy)

    def _refusal(self, user: User, client: ConnectingClient, proxy: str) -> Verdict | None:
        """Return why a user must not log in over this connection; None: it may."""
        if not user.may_use(client.connection_type):
            return refused("Connection type not allowed")
        if user.options.proxy_required and not proxy:
            return refused("proxy connection required", ClosedReason.PROXY_REQUIRED)
        return None

    def _by_nkey(
        self, user: User | None, client: ConnectingClient, connect: Credentials, proxy: str
    ) -> Verdict:
        """Check the signature of the nonce; the one of an unknown key is checked as well."""
        refusal = REFUSED if user is None else self._refusal(user, client, proxy)
        nkey = connect.nkey if user is None else user.options.nkey
        is_right = nkey == self._no_auth_user
        if not is_right:
            if not connect.sig:
                return refused("Signature missing")
            signature = decode_signature(connect.sig)
            if signature is None:
                return refused("Signature not valid base64")
            is_right = verify(nkey, client.nonce, signature)
        if refusal is not None:
            return refusal
        if user is None or not is_right:
            return refused("Signature not verified")
        return self.users.accept(user)

    def _by_certificate(
        self, client: ConnectingClient, connect: Credentials, proxy: str
    ) -> Verdict | Awaitable[Verdict]:
        """Find the user that the client's certificate names, and check its password, if any."""
        from natsd.auth.certificate_users import user_of_certificate

        certificates = client.peer_certificates()
        if not certificates:
            return refused("User required in cert, no peer certificates found")
        if len(certificates) > 1:
            client.debug("Multiple peer certificates found, selecting first")
        candidates = {
            name: user
            for name, user in self.users.by_name.items()
            if user.may_use(client.connection_type)
        }
        found = user_of_certificate(certificates[0], candidates)
        for text in found.steps:
            client.debug(text)
        if found.name is None:
            return REFUSED
        if connect.user:
            client.debug(
                f"User {quoted(connect.user)} found in connect proto, but user required from cert"
            )
        return self._by_name(candidates[found.name], client, connect, proxy)

    def _by_name(
        self, user: User | None, client: ConnectingClient, connect: Credentials, proxy: str
    ) -> Verdict | Awaitable[Verdict]:
        refusal = REFUSED if user is None else self._refusal(user, client, proxy)
        if user is None or refusal is not None:
            return _if_right(
                self.passwords.refuse(connect.password, client.ip), REFUSED, refusal or REFUSED
            )
        is_right = self.passwords.check(user.options.password, connect.password, client.ip)
        return _if_right(is_right, self.users.accept(user))

    def _by_single_login(
        self, client: ConnectingClient, connect: Credentials, proxy: str
    ) -> Verdict | Awaitable[Verdict]:
        """Check the token, or the single user, of `authorization`."""
        login = self._login
        if login.proxy_required and not proxy:
            return refused("proxy connection required", ClosedReason.PROXY_REQUIRED)
        if login.token:
            is_right = self.passwords.check(login.token, connect.auth_token, client.ip)
            return _if_right(is_right, self._token_accepted)
        if (login.user or login.password) and self.passwords.same(connect.user, login.user):
            is_right = self.passwords.check(login.password, connect.password, client.ip)
            return _if_right(is_right, self._user_accepted)
        return _if_right(self.passwords.refuse(connect.password, client.ip), REFUSED)


def _if_right(
    is_right: bool | Awaitable[bool], accepted: Verdict, refusal: Verdict = REFUSED
) -> Verdict | Awaitable[Verdict]:
    """Return the verdict for a password that is right, or will turn out to be, or is not."""
    if isinstance(is_right, bool):
        return accepted if is_right else refusal
    return _awaited(is_right, accepted, refusal)


async def _awaited(is_right: Awaitable[bool], accepted: Verdict, refusal: Verdict) -> Verdict:
    return accepted if await is_right else refusal


async def _with_proxy(verdict: Awaitable[Verdict], proxy: str) -> Verdict:
    return replace(await verdict, proxy_key=proxy)


def _check_no_auth_user(name: str, users: UserTable) -> None:
    """Raise OptionsError if the `no_auth_user` is not one of the users."""
    if not name or name in users.by_name or name in users.by_nkey:
        return
    if not len(users):
        raise OptionsError(f'no_auth_user: "{name}" present, but users/nkeys are not defined')
    raise OptionsError(
        f'no_auth_user: "{name}" not present as user or nkey in authorization block or account '
        "configuration"
    )
