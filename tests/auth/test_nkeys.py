"""nkeys (nats-io/nkeys): what is encoded decodes, and nothing else does."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.nkeys import KeyPair, decode_signature, verify
from natsd.config.public_keys import BadNkey, Kind, decode_public, encode_public, is_public

KINDS = st.sampled_from(list(Kind))
SECRETS = st.binary(min_size=32, max_size=32)

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
"""The example of docs.nats.io for authentication with nkeys."""


def test_the_documented_seed_has_the_documented_public_key() -> None:
    pair = KeyPair.from_seed(SEED)
    assert pair.kind is Kind.USER
    assert pair.public == PUBLIC
    assert pair.seed == SEED
    assert is_public(PUBLIC, Kind.USER)
    assert not is_public(PUBLIC, Kind.ACCOUNT)


@pytest.mark.parametrize(
    ("kind", "letter"),
    [
        (Kind.OPERATOR, "O"),
        (Kind.ACCOUNT, "A"),
        (Kind.USER, "U"),
        (Kind.SERVER, "N"),
        (Kind.CLUSTER, "C"),
        (Kind.CURVE, "X"),
    ],
)
def test_the_first_letters_tell_the_kind(kind: Kind, letter: str) -> None:
    pair = KeyPair.create(kind)
    assert pair.public[0] == letter
    assert pair.seed[:2] == f"S{letter}"


@given(KINDS, SECRETS)
def test_keys_decode_to_what_was_encoded(kind: Kind, secret: bytes) -> None:
    assert decode_public(encode_public(kind, secret)) == (kind, secret)
    pair = KeyPair(kind, secret)
    assert KeyPair.from_seed(pair.seed) == pair


@given(KINDS, SECRETS, st.integers(0, 55), st.characters(max_codepoint=127))
def test_another_character_makes_it_no_key(
    kind: Kind, secret: bytes, at: int, character: str
) -> None:
    text = encode_public(kind, secret)
    changed = text[:at] + character + text[at + 1 :]
    if changed != text:
        with pytest.raises(BadNkey):
            decode_public(changed)


@given(st.text(max_size=64) | st.binary(max_size=40).map(lambda b: base64.b32encode(b).decode()))
def test_any_text_is_a_key_or_is_refused(text: str) -> None:
    try:
        kind, key = decode_public(text)
    except BadNkey:
        return
    assert encode_public(kind, key) == text


@pytest.mark.parametrize("text", ["", PUBLIC.lower(), PUBLIC + "=", PUBLIC[:-1], SEED, "é" * 56])
def test_what_is_not_spelled_as_a_public_key_is_refused(text: str) -> None:
    with pytest.raises(BadNkey):
        decode_public(text)


@pytest.mark.parametrize("seed", ["", PUBLIC, SEED.lower(), SEED[:-1] + "Z", "S" + "A" * 57])
def test_what_is_not_a_seed_is_refused_and_not_shown(seed: str) -> None:
    with pytest.raises(BadNkey) as raised:
        KeyPair.from_seed(seed)
    assert not seed or seed not in str(raised.value)


def test_a_second_spelling_of_a_seed_is_refused() -> None:
    # 36 bytes leave two bits of the last character unused.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    other = SEED[:-1] + alphabet[alphabet.index(SEED[-1]) ^ 1]
    assert base64.b32decode(other + "======") == base64.b32decode(SEED + "======")
    with pytest.raises(BadNkey):
        KeyPair.from_seed(other)


def test_a_key_does_not_show_its_secret() -> None:
    pair = KeyPair.from_seed(SEED)
    assert repr(pair) == "KeyPair(kind=<Kind.USER: 160>)"


@given(st.binary(min_size=1, max_size=200), st.integers(0, 63))
def test_a_signature_holds_for_its_message_only(message: bytes, at: int) -> None:
    pair = KeyPair.from_seed(SEED)
    signature = pair.sign(message)
    assert verify(PUBLIC, message, signature)
    assert not verify(PUBLIC, message + b".", signature)
    changed = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
    assert not verify(PUBLIC, message, changed)


def test_the_signature_of_an_empty_text_does_not_verify() -> None:
    """It proves nothing: it is the same for each connection."""
    pair = KeyPair.create(Kind.USER)
    assert not verify(pair.public, b"", pair.sign(b""))


def test_other_keys_and_lengths_do_not_verify() -> None:
    pair = KeyPair.from_seed(SEED)
    signature = pair.sign(b"nonce")
    assert not verify(KeyPair.create(Kind.USER).public, b"nonce", signature)
    assert not verify(KeyPair.create(Kind.CURVE).public, b"nonce", signature)
    assert not verify(PUBLIC[:-1], b"nonce", signature)
    assert not verify(PUBLIC, b"nonce", signature[:-1])
    with pytest.raises(BadNkey):
        KeyPair.create(Kind.CURVE).sign(b"nonce")


@given(st.binary(min_size=64, max_size=64))
def test_signatures_come_as_base64url_and_as_base64(signature: bytes) -> None:
    url = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert decode_signature(url) == signature
    assert decode_signature(base64.b64encode(signature).decode()) == signature


@pytest.mark.parametrize("text", ["a", "a b", "äöü", "_-+/", "AA=A"])
def test_other_texts_are_no_signature(text: str) -> None:
    assert decode_signature(text) is None
