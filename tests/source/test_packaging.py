"""The top-level names, the compiled modules and their options, and the contents of a wheel."""

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePath

import pytest
from setuptools import Distribution

from natsd.monitor.dashboard import FILES
from tests.source.reading import ROOT

INCLUDE = re.compile(r'^include "([^"]+)"', re.MULTILINE)
COMPILED = sorted((ROOT / "natsd").rglob("*.pyx"))
INCLUDED = [path.parent / name for path in COMPILED for name in INCLUDE.findall(path.read_text())]
MODULES = [path.relative_to(ROOT) for path in COMPILED if path not in INCLUDED]

TOP_LEVEL = {
    ".ci",
    ".dockerignore",
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


def test_nothing_else_at_the_top() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assert strangers(listed.stdout.splitlines()) == set()


def test_a_stranger_at_the_top_is_seen() -> None:
    assert strangers(["natsd/core/x.pyx", "setup.py", "utils/x.py"]) == {"setup.py", "utils"}


def test_every_compiled_file_is_part_of_one_module() -> None:
    assert sorted(set(INCLUDED)) == sorted(INCLUDED)
    assert set(INCLUDED) <= set(COMPILED)


def test_the_modules_are_few() -> None:
    """Each costs seconds of compiling, milliseconds of a start and 100 KB of a wheel."""
    assert len(MODULES) <= 32


@pytest.mark.parametrize("pyx", MODULES, ids=str)
def test_compiled_module_has_its_types(pyx: Path) -> None:
    assert (ROOT / pyx).with_suffix(".pyi").exists()


def test_only_modules_have_types() -> None:
    assert [path for path in INCLUDED if path.with_suffix(".pyi").exists()] == []


def test_a_wheel_carries_types_declarations_and_the_dashboard_but_no_sources(
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
    page = {f"natsd/monitor/dashboard/{name}" for name in FILES}
    assert copied == {*(found_by_spark(path) for path in typed), *map(PurePath, page)}


def found_by_spark(path: PurePath) -> PurePath:
    """Return a file's place in a wheel: natsd/spark/discovery is at the top level."""
    discovery = PurePath("natsd/spark/discovery")
    return path.relative_to(discovery) if path.is_relative_to(discovery) else path


def test_an_archive_of_the_sources_builds(tmp_path: Path) -> None:
    """`pip install natsd-….tar.gz` needs every source and header, and the build itself."""
    code = f"""
import sys
sys.path.insert(0, ".ci")
import build
from setuptools._distutils.filelist import FileList

distribution = build.read_project()
distribution.get_command_obj("egg_info").egg_base = {str(tmp_path)!r}
command = distribution.get_command_obj("sdist")
command.ensure_finalized()
command.filelist = FileList()
command.add_defaults()
print(*command.filelist.files, sep="\\n")
"""
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    packed = set(listed.stdout.split())
    sources = [path for suffix in ("py", "pyx", "pxd", "pyi", "h") for path in source_files(suffix)]
    assert {".ci/build.py", "pyproject.toml", *sources} - packed == set()


def source_files(suffix: str) -> list[str]:
    found = (ROOT / "natsd").rglob(f"*.{suffix}")
    return [str(path.relative_to(ROOT)) for path in found]
