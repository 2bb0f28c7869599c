"""The settings of `resolver`: where the JWTs of accounts come from.

    resolver: MEMORY                          # those of resolver_preload
    resolver: URL("https://host/jwt/v1/accounts/")
    resolver: { type: full, dir: "./jwt", allow_delete: true, interval: "2m" }
    resolver: { type: cache, dir: "./jwt", limit: 1000, ttl: "1h" }

Source: nats-server's `processConfigFileLine` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    duration,
    file,
    flag,
    text,
    whole,
    word,
)

MEMORY: Final = "memory"
URL: Final = "url"
FULL: Final = "full"
CACHE: Final = "cache"
KINDS: Final = {"mem": MEMORY, "memory": MEMORY, "url": URL, "full": FULL, "cache": CACHE}
FETCH_TIMEOUT: Final = timedelta(milliseconds=1900)
INT64_MAX: Final = 2**63 - 1
_MEMORY: Final = re.compile(r"(MEM|MEMORY)\s*", re.IGNORECASE)
_URL: Final = re.compile(r'URL\(\s*"?([^\s"]*)"?\s*\)\s*', re.IGNORECASE)
_EXPECTED: Final = 'should be MEM or URL("url") or a map containing dir and type=[FULL|CACHE]'


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions(Settings):
    """Where the JWTs of accounts come from."""

    kind: str = word(MEMORY, KINDS, "kind of resolver")
    url: str = text("", "address that an account's public key is appended to; of kind url")
    dir: Path | None = file("directory of the JWTs; of kinds full and cache")
    allow_delete: bool = flag(False, "the operator may delete accounts; of kind full")
    hard_delete: bool = flag(False, "remove files of deleted accounts, in place of renaming them")
    interval: timedelta = duration(timedelta(0), "how often servers compare; not given: 1m")
    limit: int = whole(0, 0, INT64_MAX, "JWTs that the directory holds; 0: no limit")
    ttl: timedelta = duration(timedelta(0), "how long the cache keeps a JWT; not given: 1h")
    timeout: timedelta = duration(FETCH_TIMEOUT, "how long a lookup may take")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.kind == URL and not urlsplit(self.url).scheme:
            raise OptionsError(f"error parsing account resolver url {self.url!r}", setting="url")
        if self.kind in (FULL, CACHE) and self.dir is None:
            raise OptionsError("dir has no value and needs to point to a directory", setting="dir")
        if self.kind == CACHE:
            for name in ("interval", "allow_delete", "hard_delete"):
                if getattr(self, name):
                    raise OptionsError(f"CACHE does not accept {name}", setting=name)
        if self.kind == FULL and self.ttl:
            raise OptionsError("FULL does not accept ttl", setting="ttl")
        if self.hard_delete and not self.allow_delete:
            raise OptionsError("hard_delete has no effect without delete", setting="hard_delete")


def read_resolver(given: object) -> ResolverOptions:
    """Return the section from a text or a mapping. Raises OptionsError."""
    if not isinstance(given, str):
        return section_of(ResolverOptions, given, aliases={"type": "kind"})
    if _MEMORY.fullmatch(given):
        return ResolverOptions()
    if found := _URL.fullmatch(given):
        return ResolverOptions(kind=URL, url=found[1])
    raise OptionsError(f"error parsing account resolver, {_EXPECTED}")
