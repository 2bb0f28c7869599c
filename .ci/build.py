"""Compiles natsd's modules in one of these ways.

    python .ci/build.py release        in place, beside the sources: for `make run`, `make test`
    python .ci/build.py debug          into build/debug: all checks on, live objects counted
    python .ci/build.py asan           into build/asan: like debug, with AddressSanitizer
    python .ci/build.py fuzz           into build/fuzz: like asan, by clang, with libFuzzer coverage
    python .ci/build.py editable       build/editable/*.whl, which points here and compiles nothing
    python .ci/build.py packed DIR     DIR/*.whl from modules already compiled: for Spark's tests
    python .ci/build.py requirements   prints the packages that this program needs

The modules and their release flags are `ext-modules` in pyproject.toml. A variant (debug, asan,
fuzz) replaces the flags and is built, with the Python files, into its own directory, which goes on
PYTHONPATH. No variant changes the files of another.
"""

import logging
import os
import shutil
import sys
import tomllib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Distribution, Extension

ROOT = Path(__file__).resolve().parent.parent
CHECKED = {"boundscheck": True, "initializedcheck": True, "nonecheck": True, "wraparound": True}
GENERATED_CODE_FLAGS = ["-Wno-unused-variable"]
DEBUG_FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-UNDEBUG", "-DNATSD_DEBUG=1")


@dataclass(frozen=True)
class Variant:
    """The differences of a build from the release, whose flags are in pyproject.toml."""

    flags: tuple[str, ...]
    link_flags: tuple[str, ...] = ()
    compiler: str | None = None
    directives: dict[str, bool] = field(default_factory=lambda: CHECKED)


VARIANTS = {
    "debug": Variant(DEBUG_FLAGS),
    "asan": Variant((*DEBUG_FLAGS, "-fsanitize=address"), ("-fsanitize=address",)),
    # Linked without the sanitizer's runtime: the fuzzer that loads the modules contains it.
    "fuzz": Variant((*DEBUG_FLAGS, "-fsanitize=fuzzer-no-link,address"), compiler="clang"),
}


def requirements() -> list[str]:
    """Return the packages that a build needs: [build-system] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]


def read_project() -> "Distribution":
    """Return the setuptools distribution of pyproject.toml; changes the working directory."""
    from setuptools import Distribution  # imported here: `requirements` runs before its install

    warnings.simplefilter("ignore")  # setuptools' warnings are advice for packagers
    logging.disable(logging.WARNING)
    os.chdir(ROOT)
    distribution = Distribution({"script_name": Path(__file__).name})
    distribution.parse_config_files()
    return distribution


def build(variant: Variant | None, build_dir: Path) -> None:
    """Compile outdated modules: Cython in processes, then C in threads, one per core.

    `variant` None: the release, in place. `build_dir` gets all other files.
    """
    from Cython.Build import cythonize

    cores = os.cpu_count() or 1
    distribution = read_project()
    for extension in distribution.ext_modules:
        extension.depends = [*extension.depends, "pyproject.toml", __file__]
        if variant is not None:
            extension.extra_compile_args = list(variant.flags)
            extension.extra_link_args = list(variant.link_flags)
        extension.extra_compile_args += GENERATED_CODE_FLAGS
    distribution.ext_modules = cythonize(
        distribution.ext_modules,
        nthreads=cores,
        build_dir=str(build_dir / "c") if variant else None,
        compiler_directives=variant.directives if variant else {},
    )

    build_ext = distribution.get_command_obj("build_ext")
    build_ext.parallel = cores
    build_ext.build_temp = str(build_dir / "objects")
    if variant is None:
        build_ext.inplace = True
    else:
        build_ext.build_lib = str(build_dir)
        copy_python_files(distribution, build_dir)
    distribution.run_command("build_ext")


def copy_python_files(distribution: "Distribution", build_dir: Path) -> None:
    """Copy the Python files of the packages into a variant's directory."""
    build_py = distribution.get_command_obj("build_py")
    build_py.build_lib = str(build_dir)
    distribution.run_command("build_py")


def build_editable(wheel_dir: Path) -> None:
    """Build the wheel of `pip install --editable`, for a tree that is compiled in place."""
    shutil.rmtree(wheel_dir, ignore_errors=True)
    wheel_dir.mkdir(parents=True)
    distribution = read_project()
    distribution.ext_modules = []
    # Spark does not look into editable installs; without it natsd stays one directory on the path.
    distribution.packages.remove("pyspark_natsd")
    distribution.get_command_obj("editable_wheel").dist_dir = str(wheel_dir)
    distribution.run_command("editable_wheel")


def build_packed(wheel_dir: Path) -> None:
    """Build the wheel that `pip wheel` would build, but from compiled modules, in seconds.

    The modules are those beside the sources, or in the directory that NATSD_COMPILED names.
    """
    from setuptools.command.build_ext import build_ext

    compiled = Path(os.environ.get("NATSD_COMPILED", ROOT))

    class TakeCompiled(build_ext):
        def build_extension(self, extension: "Extension") -> None:
            """Copy the compiled module in place of compiling it."""
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(compiled / self.get_ext_filename(extension.name), target)

    wheel_dir.mkdir(parents=True, exist_ok=True)
    distribution = read_project()
    distribution.cmdclass["build_ext"] = TakeCompiled
    distribution.get_command_obj("build").build_base = str(wheel_dir / "build")
    distribution.get_command_obj("egg_info").egg_base = str(wheel_dir)
    packing = distribution.get_command_obj("bdist_wheel")
    packing.compression = "stored"
    packing.dist_dir = str(wheel_dir)
    packing.bdist_dir = str(wheel_dir / "bdist")
    distribution.run_command("bdist_wheel")


def main(arguments: list[str]) -> int:
    """Run the command of the arguments; return the exit code, 2 for an unknown command."""
    match arguments:
        case ["requirements"]:
            print(*requirements())
        case ["editable"]:
            build_editable(ROOT / "build" / "editable")
        case ["packed", wheel_dir]:
            build_packed(Path(wheel_dir).resolve())
        case ["release"]:
            build(None, ROOT / "build" / "release")
        case [name] if name in VARIANTS:
            variant = VARIANTS[name]
            if variant.compiler is not None:
                os.environ["CC"] = variant.compiler
            build(variant, ROOT / "build" / name)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
