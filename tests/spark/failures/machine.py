"""A directory that stands for one machine of a cluster: it shares nothing but what tests name.

    machine = Machine(directory, wheel)
    subprocess.run([machine.python, "-m", "natsd", …], env=machine.environment, cwd=machine.work)

It has a Python environment of its own, in which pip installed natsd from the wheel; HOME, TMPDIR,
the directories of Spark, and the working directory are its own as well. The other packages are
those of the Python that runs the tests: copies of them would cost half a gigabyte.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from natsd.spark.java import ensure_java

PACKAGES = "packages.pth"
NOT_INHERITED = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")


class Machine:
    """Paths of a machine, and the environment of its processes."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self.directory = directory
        self.python = directory / "python" / "bin" / "python3"
        self.work = directory / "work"
        for own in ("home", "tmp", "local", "work"):
            (directory / own).mkdir(parents=True)
        self._install(wheel)
        self.environment = self._environment()

    def _install(self, wheel: Path) -> None:
        venv = self.python.parent.parent
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        install = ["install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
        subprocess.run([*pip, "--python", str(self.python), *install], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        # Only after pip, which would find an installed natsd there. Python ignores .pth files in
        # the directories that a .pth file names, and so the link to the sources.
        packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        (site / PACKAGES).write_text("".join(f"{path}\n" for path in packages))

    def _environment(self) -> dict[str, str]:
        tests = Path(sys.executable).parent
        path = [one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != tests]
        found = find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        home = Path(found.origin).parent
        (core,) = home.glob("jars/spark-core_*.jar")
        own = {
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            "PATH": os.pathsep.join([str(self.python.parent), *path]),
            "PYSPARK_PYTHON": "python3",  # on each machine, the one that is first on its PATH
            "SPARK_HOME": str(home),
            # Workers start executors as Spark's scripts do, which look for build directories.
            "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
        }
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)
        }
        result = {**kept, **own}
        ensure_java(result)
        return result
