from collections.abc import Callable, Mapping

from natsd.config.settings import Position
from natsd.config.tree import ConfigMap, Source

class Key(str):
    source: Source
    offset: int
    is_variable: bool
    @property
    def position(self) -> Position: ...

def digest(tree: ConfigMap) -> str: ...

class Parser:
    warnings: list[tuple[Position, str]]
    def __init__(
        self,
        text: str,
        name: str,
        read_included: Callable[[str], ConfigMap],
        environment: Mapping[str, str],
        references: frozenset[str] = ...,
    ) -> None: ...
    def parse(self) -> ConfigMap: ...
