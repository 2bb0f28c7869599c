"""nkeys: a text is a key in its only spelling, or is refused; only a key's own signatures hold.

Input: the text of a key, a newline, the text of a signature, a newline, and a message.
"""

import contextlib

from natsd.auth.nkeys import SIGNATURE_BYTES, KeyPair, decode_signature, verify
from natsd.auth.xkeys import BadSealed, unseal
from natsd.config.public_keys import BadNkey, Kind, decode_public, encode_public
from natsd.testing.jwts import key

MODULES: list[str] = []
USER, CURVE = key(Kind.USER, "fuzz"), key(Kind.CURVE, "fuzz")
PUBLIC = {pair.public: pair for pair in (USER, CURVE)}
SEEDS = [
    b"",
    USER.public.encode() + b"\n" + b"A" * 86 + b"\nnonce",
    USER.seed.encode() + b"\n" + b"_-" * 43 + b"\n",
    CURVE.public.encode() + b"\n" + b"+/" * 43 + b"==\nxkv1" + bytes(60),
    KeyPair(Kind.CLUSTER, bytes(32)).seed.encode() + b"\nA=A\n\xff",
]


def check(data: bytes) -> None:
    text, _, rest = data.partition(b"\n")
    signature_text, _, message = rest.partition(b"\n")
    check_key(text.decode("latin-1"))
    signature = decode_signature(signature_text.decode("latin-1"))
    if signature is not None:
        true = USER.sign(message)
        assert verify(USER.public, message, signature) is (signature == true)
        assert verify(text.decode("latin-1"), message, signature) in {False, signature == true}
        assert not verify(USER.public, message, signature[: SIGNATURE_BYTES - 1])
    with contextlib.suppress(BadSealed):
        unseal(message, CURVE, CURVE.public)
        raise AssertionError("a message that nobody sealed was opened")


def check_key(text: str) -> None:
    with contextlib.suppress(BadNkey):
        kind, raw = decode_public(text)
        assert encode_public(kind, raw) == text
    with contextlib.suppress(BadNkey):
        pair = KeyPair.from_seed(text)
        assert pair.seed == text
