"""JWTs: any text is refused in one way, and any claims that are signed are typed or refused.

Input: a byte, and the text of a token, or the JSON of claims, which a key of the byte's choice
signs. Claims that decode have an answer about what is wrong with them.
"""

import base64
import contextlib

from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.decode import decode, decode_generic
from natsd.auth.jwt.token import BadToken
from natsd.config.public_keys import Kind
from natsd.testing.jwts import Operator, key

MODULES: list[str] = []
KEYS = [key(kind, "fuzz") for kind in (Kind.OPERATOR, Kind.ACCOUNT, Kind.USER, Kind.SERVER)]
HEADERS = [b'{"typ":"JWT","alg":"ed25519-nkey"}', b'{"typ":"jwt","alg":"ed25519"}']
AS_TEXT = 0x80
ISSUERS = [pair.public.encode() for pair in KEYS]
ACCOUNT = Operator().account(
    "A",
    exports=[{"subject": "a.*", "type": "stream", "account_token_position": 2}],
    imports=[{"subject": "b.>", "type": "service", "account": "A", "local_subject": "c.>"}],
    mappings={"a": [{"subject": "b", "weight": 50, "cluster": "c"}]},
    signing_keys=["A", {"kind": "user_scope", "key": "A", "template": {"src": "10.0.0.0/8"}}],
)
USER = ACCOUNT.user(times=[{"start": "1:00:00", "end": "2:00:00"}], times_location="UTC")
SEEDS = [
    b"",
    b"\x80" + ACCOUNT.jwt.encode(),
    b"\x80" + USER.jwt.encode(),
    b"\x80a.b.c",
    *(
        bytes([0 if text is ACCOUNT.jwt else 1])
        + base64.urlsafe_b64decode(text.split(".")[1] + "===")
        for text in (ACCOUNT.jwt, USER.jwt)
    ),
    b'\x01{"type":"user","nats":{"src":"10.0.0.0/8, ","max":1},"Sub":"U","exp":null}',
    b'\x01{"nats":{"type":"authorization_response","version":2,"jwt":"x","error":"y"}}',
    b'\x03{"nats":{"type":"authorization_request","version":2,"client_info":{"id":1}}}',
    b'\x00{"nats":{"type":"operator","version":2,"assert_server_version":"2.14.5"}}',
    b'\x00{"nats":' + b'{"a":[' * 40 + b"]}" * 40 + b"}",
]


def check(data: bytes) -> None:
    choice, text = data[0] if data else 0, data[1:]
    with contextlib.suppress(BadToken):
        check_token(text.decode("latin-1") if choice & AS_TEXT else signed(choice, text))


def signed(choice: int, claims: bytes) -> str:
    pair = KEYS[choice % len(KEYS)]
    claims = claims.replace(b"{", b'{"iss":"%s",' % ISSUERS[choice % len(KEYS)], 1)
    header, payload = part(HEADERS[choice >> 4 & 1]), part(claims)
    message = payload if choice >> 4 & 1 else f"{header}.{payload}"
    return f"{header}.{payload}.{part(pair.sign(message.encode()))}"


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def check_token(text: str) -> None:
    with contextlib.suppress(BadToken):
        assert isinstance(decode_generic(text).data, dict)
    claims = decode(text)
    is_account = isinstance(claims, AccountClaims)
    issues = account_issues(claims, 1e9) if is_account else claims.issues(1e9)
    assert all(isinstance(issue, str) for issue in issues.all)
