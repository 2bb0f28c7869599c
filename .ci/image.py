"""Lay out the files of the container image below a directory: Python, natsd and what they need.

    python .ci/image.py SITE IMAGE      SITE holds natsd and its dependencies, installed by pip

Run by the Dockerfile, with the Python that goes into the image; needs `strip` and `ldd`. The C
library, OpenSSL and the compiler's run-time libraries are those of the base image.

- Left out: what only people and compilers need (pip, IDLE, headers, type stubs), modules of Python
  whose libraries the base lacks and that nothing here uses.
- Modules are compiled here, since nothing can be written where the image runs. Their sources stay:
  tracebacks show them.
"""

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode

BASE_LIBRARIES = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|util|pthread|resolv|ssl|crypto|gcc_s|stdc\+\+))\.so\.\d+"
)
"""Names of the libraries that the base image has."""
NOT_OF_PYTHON = (
    *("config-*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test"),
    *("tkinter", "turtledemo", "turtle.py", "unittest", "venv", "distutils", "sqlite3", "curses"),
    *("dbm", "_tkinter*", "_sqlite3*", "_curses*", "readline*", "_gdbm*", "_dbm*", "_test*"),
    *("_xxtestfuzz*", "xxlimited*", "_ctypes_test*", "nis.*", "ossaudiodev.*", "__pycache__"),
    *("*.a", "*.pyc"),
)
NOT_OF_SITE = ("*.pyi", "*.pxd", "*.pyx", "*.h", "*.c", "__pycache__", "bin")


def main(site: Path, image: Path) -> None:
    """Write the files; IMAGE must be missing or empty."""
    prefix = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    target = image / library.relative_to("/")
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*NOT_OF_PYTHON), symlinks=True)
    shutil.copytree(
        site, target / "site-packages", ignore=shutil.ignore_patterns(*NOT_OF_SITE), symlinks=True
    )
    programs = image / prefix.relative_to("/") / "bin"
    programs.mkdir(parents=True)
    python = programs / f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(os.path.realpath(sys.executable), python)
    (programs / "python3").symlink_to(python.name)
    natsd = programs / "natsd"
    natsd.write_text(
        f"#!/{python.relative_to(image)} -I\n"
        "import sys\nfrom natsd.cli import main\nsys.exit(main())\n"
    )
    natsd.chmod(0o755)
    for name, path in needed_libraries([python, *target.rglob("*.so")]).items():
        if not (BASE_LIBRARIES.fullmatch(name) or target in path.parents):
            placed = image / path.relative_to("/")
            placed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), placed)
    for binary in (python, *image.rglob("*.so"), *image.rglob("*.so.*")):
        subprocess.run(["strip", "--strip-unneeded", binary], check=True)
    compileall.compile_dir(
        target,
        quiet=1,
        stripdir=image,
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def needed_libraries(binaries: list[Path]) -> dict[str, Path]:
    """Return the libraries that binaries are linked with, by name."""
    found = {}
    for binary in binaries:
        shown = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", shown, re.MULTILINE):
            found[name] = Path(path)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
