"""Builds natsd: the backend of `pip install .`, and the compiler of `make`.

    python .ci/build.py release        in place, beside the sources: for `make run`, `make test`
    python .ci/build.py debug          into build/debug: all checks on, live objects counted
    python .ci/build.py asan           into build/asan: like debug, with AddressSanitizer
    python .ci/build.py fuzz           into build/fuzz: like asan, by clang, with libFuzzer coverage
    python .ci/build.py editable       build/editable/*.whl, which points here and compiles nothing
    python .ci/build.py packed DIR     DIR/*.whl from modules already compiled: for Spark's tests

Each `.pyx` that no other `.pyx` includes becomes one extension module, together with the files that
it includes. There are about twenty-five, since what each module costs (its copies of Cython's own
code, and of the declarations that it cimports) was two thirds of the build when each file was a
module. What Cython can share of its own code is in a module of its own, `natsd.cython_shared`.
One process per core translates a module to C and compiles it, the largest module first. A module is
compiled again if a file that it includes, cimports, or could include as a header is newer.

A variant (debug, asan, fuzz) is built, with the Python files, into its own directory, which goes on
PYTHONPATH. No variant changes the files of another.
"""

import compileall
import functools
import logging
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import setuptools
from setuptools import Distribution, Extension
from setuptools.build_meta import *  # noqa: F403  (the hooks of PEP 517, with natsd's modules)
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "natsd" / "core"
INCLUDE = re.compile(r'^include "([^"]+)"', re.MULTILINE)
CHECKED = {"boundscheck": True, "initializedcheck": True, "nonecheck": True, "wraparound": True}
DEBUG_FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-UNDEBUG", "-DNATSD_DEBUG=1")


@dataclass(frozen=True)
class Variant:
    """One way to compile the modules."""

    flags: tuple[str, ...]
    link_flags: tuple[str, ...] = ()
    core_flags: tuple[str, ...] = ()  # more flags for the modules of natsd/core
    compiler: str | None = None
    directives: dict[str, bool] = field(default_factory=lambda: CHECKED)


# gcc limits inlining by the size of a file, and a module of many files reaches the limit: without
# these two, publishing 16 B reached 0.76 of its speed with a module for each file.
INLINING = (
    *("--param", "inline-unit-growth=400", "--param", "large-unit-insns=100000"),
    "-fno-inline-functions-called-once",
)
# The flags of the core would save a publish to a stream 1 to 2 % of its instructions, and cost a
# first build a tenth of its time.
RELEASE = Variant(
    ("-O2", "-g0", "-DCYTHON_WITHOUT_ASSERTIONS"), core_flags=("-O3", *INLINING), directives={}
)
SHARED = "natsd.cython_shared"
VARIANTS = {
    "debug": Variant(DEBUG_FLAGS),
    "asan": Variant((*DEBUG_FLAGS, "-fsanitize=address"), ("-fsanitize=address",)),
    # Linked without the sanitizer's runtime: the fuzzer that loads the modules contains it.
    "fuzz": Variant((*DEBUG_FLAGS, "-fsanitize=fuzzer-no-link,address"), compiler="clang"),
}


def extensions(variant: Variant = RELEASE) -> list[Extension]:
    """Return an extension for each `.pyx` that no other includes; its `depends` are the others.

    The source of the first one, `SHARED`, is generated when it is compiled.
    """
    found = sorted(ROOT.glob("natsd/**/*.pyx"))
    parts = {
        path: [path.parent / name for name in INCLUDE.findall(path.read_text())] for path in found
    }
    included = {part for named in parts.values() for part in named}
    headers = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("natsd/**/*.h"))]
    settings = {
        "include_dirs": ["."],
        "extra_link_args": list(variant.link_flags),
    }
    return [
        Extension(SHARED, [], extra_compile_args=[*variant.flags, "-w"], **settings),
        *(
            Extension(
                ".".join(path.relative_to(ROOT).with_suffix("").parts),
                [str(path.relative_to(ROOT))],
                extra_compile_args=[
                    *variant.flags,
                    *(variant.core_flags if path.parent == CORE else ()),
                    "-w",  # warnings about generated code help nobody
                ],
                depends=[*(str(part.relative_to(ROOT)) for part in parts[path]), *headers],
                **settings,
            )
            for path in found
            if path not in included
        ),
    ]


class BuildModules(build_ext):
    """Compiles the modules that are out of date, several at once."""

    directives: dict[str, bool] = RELEASE.directives

    def build_extensions(self) -> None:
        """Compile in one process per core; print a line as each module is begun."""
        stale = self.out_of_date()
        jobs = [
            (extension, f"{extension.name.replace('.', '/')} {at}/{len(stale)} …")
            for at, extension in enumerate(stale, 1)
        ]
        compile_one = functools.partial(
            compile_module, self.directives, self.build_lib, self.build_temp
        )
        # Not forked: the process that pip runs this in may have threads.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
            for _ in pool.map(compile_one, *zip(*jobs, strict=True)) if jobs else ():
                pass

    def out_of_date(self) -> list[Extension]:
        """Return the modules whose sources are newer than their compiled file, largest first."""
        stale = []
        for extension in self.extensions:
            compiled = Path(self.get_ext_fullpath(extension.name))
            if not compiled.exists() or compiled.stat().st_mtime < newest_source(extension):
                size = sum(os.stat(path).st_size for path in extension.depends)
                stale.append((extension.name != SHARED, -size, extension.name, extension))
        return [extension for *_, extension in sorted(stale, key=lambda one: one[:3])]


def newest_source(extension: Extension) -> float:
    """Return the time of the last change of what a module is made of, Cython included."""
    import Cython
    from Cython.Build.Dependencies import create_dependency_tree

    read = [*extension.depends, __file__, Cython.__file__]
    for source in extension.sources:
        read += create_dependency_tree(quiet=True).all_dependencies(source)
    return max(os.stat(path).st_mtime for path in read)


def compile_module(
    directives: dict[str, bool], build_lib: str, build_temp: str, extension: Extension, title: str
) -> None:
    """Translate one module to C and compile it into `build_lib`."""
    from Cython.Build import cythonize

    logging.disable(logging.WARNING)
    print("compiling", title, flush=True)
    distribution = Distribution({"name": "natsd"})
    c_dir = Path(build_temp) / "c"
    if extension.name == SHARED:
        c_dir.mkdir(parents=True, exist_ok=True)
        extension.sources = [str(c_dir / "cython_shared.c")]
        generate = [sys.executable, "-m", "cython", "generate-shared", *extension.sources]
        subprocess.run(generate, check=True)
        distribution.ext_modules = [extension]
    else:
        distribution.ext_modules = cythonize(
            extension,
            build_dir=str(c_dir),
            compiler_directives={
                "auto_pickle": False,
                "binding": False,
                "language_level": 3,
                "show_performance_hints": False,
                **directives,
            },
            force=True,
            quiet=True,
            shared_utility_qualified_name=SHARED,
        )
    command = distribution.get_command_obj("build_ext")
    command.build_lib = build_lib
    command.build_temp = build_temp
    command.force = True
    distribution.run_command("build_ext")


class SourceArchive(sdist):
    """Packs the sources, and this file, with which they are built."""

    def add_defaults(self) -> None:
        """Collect the files of the archive."""
        super().add_defaults()
        self.filelist.append(str(Path(__file__).relative_to(ROOT)))


COMMANDS = {"build_ext": BuildModules, "sdist": SourceArchive}
setuptools.setup = functools.partial(setuptools.setup, ext_modules=extensions(), cmdclass=COMMANDS)


def read_project(variant: Variant = RELEASE) -> Distribution:
    """Return the setuptools distribution of this tree; changes the working directory."""
    warnings.simplefilter("ignore")  # setuptools' warnings are advice for packagers
    logging.disable(logging.WARNING)
    os.chdir(ROOT)
    distribution = Distribution(
        {
            "script_name": Path(__file__).name,
            "ext_modules": extensions(variant),
            "cmdclass": dict(COMMANDS),
        }
    )
    distribution.parse_config_files()
    return distribution


def build(variant: Variant, build_dir: Path, *, inplace: bool) -> None:
    """Compile what is out of date: in place, or with the Python files into `build_dir`."""
    distribution = read_project(variant)
    command = distribution.get_command_obj("build_ext")
    command.directives = variant.directives
    command.build_temp = str(build_dir / "objects")
    if inplace:
        command.inplace = True
    else:
        command.build_lib = str(build_dir)
        copying = distribution.get_command_obj("build_py")
        copying.build_lib = str(build_dir)
        distribution.run_command("build_py")
    distribution.run_command("build_ext")
    if inplace:  # as pip does: without bytecode a start takes a third longer
        compileall.compile_dir(ROOT / "natsd", quiet=2, workers=0)


def build_editable_wheel(wheel_dir: Path) -> None:
    """Build the wheel of `pip install --editable`, for a tree that is compiled in place."""
    shutil.rmtree(wheel_dir, ignore_errors=True)
    wheel_dir.mkdir(parents=True)
    distribution = read_project()
    distribution.ext_modules = []
    # Spark does not look into editable installs; without it natsd stays one directory on the path.
    distribution.packages.remove("pyspark_natsd")
    command = distribution.get_command_obj("editable_wheel")
    command.dist_dir = str(wheel_dir)
    command.mode = "compat"  # a line in a .pth file: setuptools' finder costs 10 ms at each start
    distribution.run_command("editable_wheel")


def build_packed(wheel_dir: Path) -> None:
    """Build the wheel that `pip wheel` would build, but from compiled modules, in seconds.

    The modules are those beside the sources, or in the directory that NATSD_COMPILED names.
    """
    compiled = Path(os.environ.get("NATSD_COMPILED", ROOT))

    class TakeCompiled(build_ext):
        def build_extension(self, extension: Extension) -> None:
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
        case ["editable"]:
            build_editable_wheel(ROOT / "build" / "editable")
        case ["packed", wheel_dir]:
            build_packed(Path(wheel_dir).resolve())
        case ["release"]:
            build(RELEASE, ROOT / "build" / "release", inplace=True)
        case [name] if name in VARIANTS:
            variant = VARIANTS[name]
            if variant.compiler is not None:
                os.environ["CC"] = variant.compiler
            build(variant, ROOT / "build" / name, inplace=False)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
