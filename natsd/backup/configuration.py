"""The configuration that belongs to a backup: files as they are, and the JWTs of accounts.

    config/<path>      the configuration file and those that it includes; paths are relative to
                       the directory of the first one
    jwt/<account>.jwt  the JWTs in the directory of its resolver, or those that a server knows

The files have their secrets in clear, so they are in a backup only if its user names them. JWTs are
public.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import BackupError
from natsd.backup.manifest import Manifest
from natsd.backup.pieces import FILE_MODE, make_directories

if TYPE_CHECKING:
    from natsd.spark.wire.client import NatsClient

CONFIG: Final = "config"
JWTS: Final = "jwt"
JWT_SUFFIX: Final = ".jwt"

NamedFile = tuple[str, bytes]
"""Relative path and content of a file."""


def files_of(config: Path) -> Iterator[NamedFile]:
    """Yield the configuration file, its includes, and the JWTs of its resolver's directory.

    Raises BackupError or OSError.
    """
    from natsd.config import OptionsError
    from natsd.config.load import load_options

    try:
        loaded = load_options(config)
    except OptionsError as error:
        raise BackupError(str(error)) from None
    base = config.absolute().parent
    for path in loaded.files:
        parts = Path(os.path.relpath(path.absolute(), base)).parts
        relative = "/".join("outside" if part == ".." else part for part in parts)
        yield f"{CONFIG}/{relative}", path.read_bytes()
    resolver = loaded.options.resolver
    if resolver is not None and resolver.dir is not None:
        for path in sorted(resolver.dir.rglob(f"*{JWT_SUFFIX}")):
            yield f"{JWTS}/{path.name}", path.read_bytes()


def jwts_of(client: NatsClient) -> Iterator[NamedFile]:
    """Yield the JWTs of the accounts that the server's resolver knows. Raises ClientError."""
    from natsd.spark.errors import NoResponders

    try:
        listed = json.loads(client.request("$SYS.REQ.CLAIMS.LIST").data)
    except (NoResponders, ValueError):
        return  # not an operator's server, or its resolver keeps nothing
    for account in listed.get("data") or ():
        answer = client.request(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP")
        if answer.data:
            yield f"{JWTS}/{account}{JWT_SUFFIX}", answer.data


def write_files(directory: BackupDirectory, manifest: Manifest, target: Path) -> int:
    """Write the files of a backup below `target`, which may not have them; return their number.

    Raises BackupError or OSError.
    """
    for file in manifest.files:
        path = target / file.path
        if not path.resolve().is_relative_to(target.resolve()):
            raise BackupError(f"{file.path} is no path below {target}")
        make_directories(path.parent)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError:
            raise BackupError(f"{path} exists") from None
        with os.fdopen(descriptor, "wb") as out:
            out.write(directory.body(file.body))
    return len(manifest.files)
