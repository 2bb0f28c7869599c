"""The top-level names, the compiled modules and their options, and the contents of a wheel."""

import shutil
import subprocess
import tomllib
from pathlib import Path, PurePath

import pytest
from setuptools import Distribution

from tests.source.reading import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTENSIONS = SETTINGS["tool"]["setuptools"]["ext-modules"]
COMPILED = sorted(path.relative_to(ROOT) for path in (ROOT / "natsd").rglob("*.pyx"))

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "conf",
    "docs",
    "natsd",
    "pyproject.toml",
    "tests",
}


def strangers(paths: list[str]) -> set[str]:
    return {PurePath(path).parts[0] for path in paths} - TOP_LEVEL


def module_name(pyx: PurePath) -> str:
    return ".".join(pyx.with_suffix("").parts)


def test_nothing_else_at_the_top() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assert strangers(listed.stdout.splitlines()) == set()


def test_a_stranger_at_the_top_is_seen() -> None:
    assert strangers(["natsd/core/x.pyx", "setup.py", "utils/x.py"]) == {"setup.py", "utils"}


def test_every_compiled_module_is_listed_once() -> None:
    listed = [(extension["name"], extension["sources"]) for extension in EXTENSIONS]
    expected = [(module_name(path), [path.as_posix()]) for path in COMPILED]
    assert sorted(listed) == expected


def test_compiled_modules_share_their_flags() -> None:
    flags = {
        tuple(
            sorted((key, tuple(value)) for key, value in extension.items() if key.endswith("args"))
        )
        for extension in EXTENSIONS
    }
    assert len(flags) <= 1


@pytest.mark.parametrize("pyx", COMPILED, ids=str)
def test_compiled_module_has_its_types(pyx: Path) -> None:
    assert (ROOT / pyx).with_suffix(".pyi").exists()


@pytest.mark.filterwarnings("ignore:.*ext-modules.* is still .experimental.")
def test_a_wheel_carries_types_and_declarations_but_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`build_py` copies these files; compiled modules are added to them."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files()
    build_py = distribution.get_command_obj("build_py")
    build_py.build_lib = str(tmp_path)
    build_py.ensure_finalized()
    copied = {
        PurePath(path).relative_to(tmp_path)
        for path in build_py.get_outputs(include_bytecode=False)
    }
    typed = {
        path.relative_to(ROOT)
        for suffix in (".py", ".pyi", ".pxd", ".h", ".typed", ".properties")
        for path in (ROOT / "natsd").rglob(f"*{suffix}")
    }
    assert copied == {found_by_spark(path) for path in typed}


def found_by_spark(path: PurePath) -> PurePath:
    """Return a file's place in a wheel: natsd/spark/discovery is at the top level."""
    discovery = PurePath("natsd/spark/discovery")
    return path.relative_to(discovery) if path.is_relative_to(discovery) else path
