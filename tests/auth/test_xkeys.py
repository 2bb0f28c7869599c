"""xkeys (nats-io/nkeys): a sealed message opens for its recipient only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.nkeys import KeyPair
from natsd.auth.xkeys import BadSealed, seal, unseal
from natsd.config.public_keys import BadNkey, Kind

SERVER = KeyPair.create(Kind.CURVE)
SERVICE = KeyPair.create(Kind.CURVE)

GO_SENDER = "SXAEIUFDNH4QUCDVAR6UG77QLJ33WIMFS5TXSJO6XGRH6P6PTG4DXMPLCE"
GO_RECIPIENT = "SXAGY5GTCWCWY2LFUPISD2LGE7TT6YWIOZ4CT63KQRXG46TH4UER5VRTBM"
GO_SEALED = (
    "786b76310497934df95be9f51abd13d4bf61a7f5cf24d30d"
    "75a55e7b8106e4eb08be3109429b5e5e10cf067b08cc36334e"
)


@given(st.binary(max_size=300))
def test_the_recipient_opens_what_the_sender_sealed(message: bytes) -> None:
    sealed = seal(message, SERVER, SERVICE.public)
    assert sealed.startswith(b"xkv1")
    assert unseal(sealed, SERVICE, SERVER.public) == message


def test_a_message_of_the_go_library_opens() -> None:
    """Sealed by nkeys 0.4.15 from the first seed for the public key of the second."""
    sender = KeyPair.from_seed(GO_SENDER)
    recipient = KeyPair.from_seed(GO_RECIPIENT)
    assert unseal(bytes.fromhex(GO_SEALED), recipient, sender.public) == b"hello"


@given(st.integers(0, 60))
def test_a_changed_message_does_not_open(at: int) -> None:
    sealed = bytearray(seal(b"a message", SERVER, SERVICE.public))
    sealed[at % len(sealed)] ^= 1
    with pytest.raises(BadSealed):
        unseal(bytes(sealed), SERVICE, SERVER.public)


@pytest.mark.parametrize("sealed", [b"", b"xkv1", b"xkv1" + bytes(24), b"xkv2" + bytes(60)])
def test_what_is_not_sealed_does_not_open(sealed: bytes) -> None:
    with pytest.raises(BadSealed):
        unseal(sealed, SERVICE, SERVER.public)


def test_another_key_does_not_open_it() -> None:
    sealed = seal(b"a message", SERVER, SERVICE.public)
    with pytest.raises(BadSealed):
        unseal(sealed, KeyPair.create(Kind.CURVE), SERVER.public)
    with pytest.raises(BadSealed):
        unseal(sealed, SERVICE, KeyPair.create(Kind.CURVE).public)


def test_keys_that_sign_do_not_seal() -> None:
    user = KeyPair.create(Kind.USER)
    with pytest.raises(BadNkey):
        seal(b"a message", SERVER, user.public)
    with pytest.raises(BadNkey):
        seal(b"a message", user, SERVICE.public)
