"""`curve_preferences`: the groups of a context's key exchange.

Python's `ssl` module can set several groups from 3.15 on, and one before. For several groups and an
older Python, OpenSSL itself is called, through the library that the `ssl` module has loaded:
`SSLContext` holds its SSL_CTX as the first field in all of these versions. Where that library's
functions cannot be found, the setting is refused.
"""

import ctypes
import ssl
import sys
from collections.abc import Sequence
from typing import Final

from natsd.tls.errors import TlsError

GROUPS: Final = {
    "X25519MLKEM768": "X25519MLKEM768",
    "X25519": "X25519",
    "CurveP256": "P-256",
    "CurveP384": "P-384",
    "CurveP521": "P-521",
}
"""Go's names, and OpenSSL's."""
_SINGLE: Final = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""Go's names, and those that SSLContext.set_ecdh_curve takes."""
_SET_GROUPS_LIST: Final = 92  # SSL_CTRL_SET_GROUPS_LIST
_OPENSSL_WITH_MLKEM: Final = (3, 5)


def apply(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Allow only these groups, the preferred first; none named: all. Raises TlsError."""
    if not names:
        return
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise TlsError(f"unrecognized curve preference {unknown[0]}")
    if "X25519MLKEM768" in names and ssl.OPENSSL_VERSION_INFO[:2] < _OPENSSL_WITH_MLKEM:
        raise TlsError(
            f"curve preference X25519MLKEM768 needs OpenSSL 3.5; Python uses {ssl.OPENSSL_VERSION}"
        )
    try:
        if len(names) == 1 and names[0] in _SINGLE:
            context.set_ecdh_curve(_SINGLE[names[0]])
        elif hasattr(context, "set_groups"):
            context.set_groups(_joined(names))
        else:
            _set_groups(context, _joined(names).encode())
    except (ValueError, ssl.SSLError) as error:
        raise TlsError(f"curve_preferences cannot be applied: {error}") from None


def _joined(names: Sequence[str]) -> str:
    return ":".join(GROUPS[name] for name in names)


def _set_groups(context: ssl.SSLContext, groups: bytes) -> None:
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 15):
        raise TlsError("this Python's ssl module takes only one curve preference")
    try:
        control = _openssl().SSL_CTX_ctrl
    except (OSError, AttributeError):
        raise TlsError("this Python's ssl module takes only one curve preference") from None
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
    control.restype = ctypes.c_long
    native = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
    if not native or not control(native, _SET_GROUPS_LIST, 0, groups):
        raise TlsError(f"OpenSSL does not know all of the curves {groups.decode()}")


def _openssl() -> ctypes.CDLL:
    """Return the library in which the `ssl` module finds OpenSSL's functions."""
    import _ssl

    return ctypes.CDLL(getattr(_ssl, "__file__", None))
