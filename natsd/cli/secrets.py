"""JetStream's keys, from the environment: a command line can be seen by others.

    NATSD_JETSTREAM_KEY        file streams are encrypted with it
    NATSD_JETSTREAM_PREV_KEY   the one before, while keys are being rotated
    …_KEY_FILE, …_PREV_KEY_FILE   a file that holds it, instead
    NATSD_JETSTREAM_CIPHER     chachapoly (default) or aes

They mean something only where JetStream is enabled. A file's last newline is not part of the key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from natsd.config import OptionsError

PREFIX: Final = "NATSD_JETSTREAM_"
KEYS: Final = ("key", "prev_key")
CIPHER: Final = "cipher"
FILE_SUFFIX: Final = "_FILE"


def with_secrets(settings: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the command line, with what the environment adds. Raises OptionsError."""
    added = dict(settings)
    if added.get("jetstream") is not True:
        return added
    found = {name: secret for name in KEYS if (secret := _secret(name, environment))}
    if cipher := environment.get(PREFIX + CIPHER.upper()):
        found[CIPHER] = cipher
    if found:
        added["jetstream"] = found
    return added


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
