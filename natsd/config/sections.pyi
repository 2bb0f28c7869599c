from collections.abc import Mapping
from typing import TypeVar

Section = TypeVar("Section")

def section_of(
    kind: type[Section],
    given: object,
    *,
    aliases: Mapping[str, str] = ...,
    defaults: Mapping[str, object] = ...,
) -> Section: ...
