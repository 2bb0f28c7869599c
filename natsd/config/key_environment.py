"""JetStream's encryption keys from the environment, since other users can see a command line.

    NATSD_JETSTREAM_KEY        key that encrypts JetStream's files
    NATSD_JETSTREAM_PREV_KEY   the previous key, while keys are being rotated
    …_KEY_FILE, …_PREV_KEY_FILE   path of a file that holds the key, instead
    NATSD_JETSTREAM_CIPHER     chachapoly (default) or aes

These variables are ignored unless JetStream is enabled. Newlines at the end of a key file are not
part of the key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from natsd.config.settings import OptionsError

PREFIX: Final = "NATSD_JETSTREAM_"
KEYS: Final = ("key", "prev_key")
CIPHER: Final = "cipher"
FILE_SUFFIX: Final = "_FILE"


def with_secrets(settings: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the command line's settings with the keys and cipher of the environment added.

    Raises OptionsError if a key file cannot be read or both variables of a key are set.
    """
    added = dict(settings)
    if added.get("jetstream") is not True:
        return added
    if found := keys_of(environment):
        added["jetstream"] = found
    return added


def keys_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return JetStream's keys and cipher of the environment. Raises OptionsError."""
    found = {name: secret for name in KEYS if (secret := _secret(name, environment))}
    if cipher := environment.get(PREFIX + CIPHER.upper()):
        found[CIPHER] = cipher
    return found


def _secret(name: str, environment: Mapping[str, str]) -> str:
    variable = PREFIX + name.upper()
    secret = environment.get(variable, "")
    path = environment.get(variable + FILE_SUFFIX, "")
    if not path:
        return secret
    if secret:
        raise OptionsError(f"{variable} and {variable}{FILE_SUFFIX} exclude each other")
    try:
        secret = Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OptionsError(f"{variable}{FILE_SUFFIX}: {path}: {reason}") from None
    if not secret:
        raise OptionsError(f"{variable}{FILE_SUFFIX}: {path} holds no key")
    return secret
