"""Run one fuzz target under libFuzzer with atheris.

The coverage is clang's in the compiled modules, and atheris' own in texts parsed by Python.

    python tests/fuzz/run.py subject --seconds 60        `make fuzz` calls this for each target

The modules must be those of `.ci/build.py fuzz`, on PYTHONPATH; a build without coverage is
refused, because the fuzzer would run blind. The corpus grows in fuzz-corpus/<target>, from run to
run; an input that fails a check, costs more than its length explains, crashes or hangs is written
to fuzz-corpus/<target>-found. Arguments after `--` are libFuzzer's own; a file is replayed:

    python tests/fuzz/run.py subject -- fuzz-corpus/subject-found/crash-…
"""

import argparse
import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import atheris

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz-corpus"
COVERAGE_SYMBOL = b"__sanitizer_cov_8bit_counters_init"

READERS_IN_PYTHON = [
    "natsd.auth.jwt",
    "natsd.auth.nkeys",
    "natsd.auth.xkeys",
    "natsd.clients.proxy_protocol",
    "natsd.core.durations",
    "natsd.core.wall_time",
    "natsd.jetstream.models.times",
    "natsd.jetstream.schedules",
    "natsd.jetstream.stream.lifetimes",
]
INPUT_BYTES_MAX = 4096
INPUT_SECONDS_MAX = 10
MEMORY_MB_MAX = 2048


def preload_sanitizer() -> None:
    """Restart this program with ASan and libFuzzer preloaded, before modules that need them."""
    runtime = Path(atheris.path()) / "asan_with_fuzzer.so"
    if os.environ.get("LD_PRELOAD") == str(runtime):
        return
    os.environ["LD_PRELOAD"] = str(runtime)
    os.environ["PYTHONMALLOC"] = "malloc"  # every object in its own block, for ASan to guard
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:quarantine_size_mb=32:allocator_may_return_null=1"
    os.execv(sys.executable, [sys.executable, *sys.argv])


def check_cost(check: Callable[[bytes], None], data: bytes) -> None:
    """Run the check, and check that the cost is in proportion to the input's length (cost.py)."""
    costs = importlib.import_module("tests.fuzz.cost")
    costs.check_cost(check, data)


def load(name: str) -> ModuleType:
    sys.path.append(str(ROOT))  # last, so that natsd is the build on PYTHONPATH
    with atheris.instrument_imports(include=READERS_IN_PYTHON):
        target = importlib.import_module(f"tests.fuzz.fuzz_{name}")
    for module in map(importlib.import_module, target.MODULES):
        if COVERAGE_SYMBOL not in Path(module.__file__).read_bytes():
            sys.exit(f"natsd: {module.__file__} is built without coverage: run make fuzz")
    return target


def corpus_of(name: str, seeds: list[bytes]) -> Path:
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / f"seed-{hashlib.sha1(seed).hexdigest()}").write_bytes(seed)
    return corpus


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs one fuzz target under libFuzzer.")
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("options", nargs="*", help="libFuzzer's own")
    arguments = parser.parse_args()

    preload_sanitizer()
    logging.disable(logging.CRITICAL)  # one line per bad client would be millions of lines
    target = load(arguments.target)
    found = CORPUS / f"{arguments.target}-found"
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={arguments.seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MB_MAX}",
        f"-artifact_prefix={found}/",
        f"-dict={Path(__file__).with_name('nats.dict')}",
        "-print_final_stats=1",
        *arguments.options,
    ]
    if not any(Path(option).is_file() for option in arguments.options):
        options.append(str(corpus_of(arguments.target, target.SEEDS)))
    atheris.Setup([sys.argv[0], *options], partial(check_cost, target.check))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
