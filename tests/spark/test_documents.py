"""docs/spark.md and docs/spark_example.py: the examples work, and the tables are complete.

The page's examples build on one another, as a reader pastes them: its blocks run in order, in one
namespace, against their own server, and each section is a test.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import natsd.spark.session
from natsd.cli import pipeline
from natsd.spark.options import ConnectionSettings, DataSourceOptionsError, ReadOptions
from natsd.spark.rows.columns import DDL
from natsd.spark.session import DEFAULTS
from natsd.spark.sink.write_settings import WriteSettings
from tests.spark.servers import JetStreamServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "spark.md").read_text()
SPARKS_OWN: Final = {"queryName", "checkpointLocation"}
SERVER: Final = "nats://127.0.0.1:4222"
SHUFFLE: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Block:
    """One fenced block: its language and its text."""

    language: str
    text: str


def sections() -> dict[str, list[Block]]:
    """Return the blocks of each heading that has some, in the page's order."""
    found: dict[str, list[Block]] = {}
    heading = ""
    for part in re.split(r"^(#+ .*)$", PAGE, flags=re.MULTILINE):
        if part.startswith("#"):
            heading = part.lstrip("# ")
            continue
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        if blocks:
            found[heading] = [Block(*block) for block in blocks]
    return found


SECTIONS: Final = sections()


def test_every_block_is_of_a_kind_that_is_run() -> None:
    kinds = {block.language for blocks in SECTIONS.values() for block in blocks}
    assert kinds == {"python", "text", "console", "sql"}


# The examples


class Reader:
    """A reader who pastes the page's blocks, one after the other."""

    def __init__(self, directory: Path, spark: SparkSession, server: JetStreamServer) -> None:
        self.directory = directory
        self.spark = spark
        self.server = server
        self.namespace: dict[str, Any] = {}
        self.left = dict(SECTIONS)
        self.exit_code = 0

    def read_to(self, heading: str) -> None:
        """Run all sections up to that heading that have not run yet."""
        while heading in self.left:
            blocks = self.left.pop(next(iter(self.left)))
            for block, following in zip(blocks, [*blocks[1:], Block("", "")], strict=True):
                self.run(block, following.text if following.language == "text" else "")

    def run(self, block: Block, printed: str) -> None:
        text = self.here(block.text)
        if block.language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, "spark.md", "exec"), self.namespace)
            assert self.as_printed(out.getvalue()) == self.as_printed(self.here(printed))
        elif block.language == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                self.type(command, shown)
        elif block.language == "sql":
            Path(text.split("\n")[0].removeprefix("-- ")).write_text(text)

    def type(self, command: str, shown: str) -> None:
        """Run a command as a shell would, and compare its output with the page."""
        out = io.StringIO()
        if command.startswith("kill -9"):
            self.server.kill()
        elif command == "echo $?":
            out.write(f"{self.exit_code}\n")
        elif command.startswith("natsd pipeline "):
            words = shlex.split(command)[2:]
            server = [] if words[0] == "audit" else ["--server", self.server.url]
            with contextlib.redirect_stdout(out):
                self.exit_code = pipeline.main([*words, *server])
        else:
            subprocess.run(command, shell=True, check=True)
        assert self.as_printed(out.getvalue()) == self.as_printed(shown)

    def here(self, text: str) -> str:
        """Return the text with this test's server and directory."""
        return text.replace(SERVER, self.server.url).replace("/tmp/", f"{self.directory}/")

    def as_printed(self, text: str) -> str:
        """Return the text without varying parts: directory, seconds, rates, sizes of files."""
        text = text.replace(str(self.directory), "/tmp")
        text = re.sub(r"\([\d,]+/s\)", "(N/s)", re.sub(r"\d+\.\d s\b", "N s", text))
        return re.sub(r"(files, )[\d.]+ \w+", r"\1N", text).strip()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Reader]:
    directory = tmp_path_factory.mktemp("page")
    server = JetStreamServer(directory)
    server.stop()
    server.store_dir = directory / "shop"
    server.options["jetstream"]["store_dir"] = str(server.store_dir)
    server.start()
    with pytest.MonkeyPatch.context() as patch, settings_kept(spark):
        share(spark, patch)
        yield Reader(directory, spark, server)
    server.stop()


def share(spark: SparkSession, patch: pytest.MonkeyPatch) -> None:
    """Let programs and commands that make a session get this one."""
    for where in (natsd.spark.session, pipeline):
        patch.setattr(where, "make_session", lambda *_, **__: Kept(spark), raising=False)


class Kept:
    """The shared session, which a job does not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Do nothing: the next test needs the session."""


@contextlib.contextmanager
def settings_kept(spark: SparkSession) -> Iterator[None]:
    """Restore the settings that the page and `make_session` change."""
    names = [*(name for name in DEFAULTS if name.startswith("spark.sql.")), SHUFFLE]
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.timeout(115)
@pytest.mark.parametrize("heading", SECTIONS)
def test_the_examples_of_a_section(reader: Reader, heading: str) -> None:
    if reader.server.process.process.poll() is not None:
        reader.server.start()  # as the page says after the audit
    reader.read_to(heading)


# The tables


def rows_of(title: str) -> dict[str, list[str]]:
    """Return the first table after that text: its cells by the names in the first column."""
    lines = iter(PAGE[PAGE.index(title) :].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append(re.split(r"(?<!\\)\|", line.strip("|")))
        elif table:
            break
    return {
        name: [cell.strip() for cell in cells[1:]]
        for cells in table[2:]
        for name in re.findall(r"`([^`]+)`", cells[0])
    }


CONNECTING: Final = rows_of("**Which server**")
READING: Final = rows_of("**What is read**")
WRITING: Final = rows_of("**Writing**")


def test_every_option_is_in_the_tables_and_no_other() -> None:
    shared = set(ConnectionSettings.names())
    assert set(CONNECTING) == shared
    assert set(READING) == (set(ReadOptions.names()) | set(ReadOptions.aliases)) - shared
    assert set(WRITING) == set(WriteSettings.names()) - shared - SPARKS_OWN


@pytest.mark.parametrize(
    ("settings", "table", "column"),
    [
        (ReadOptions, CONNECTING, 0),
        (ReadOptions, READING, 1),
        (WriteSettings, WRITING, 0),
    ],
)
def test_defaults_are_what_the_tables_say(
    settings: type[ConnectionSettings], table: dict[str, list[str]], column: int
) -> None:
    given = {"streams": "S"} if settings is ReadOptions else {}
    plain = settings.parse(given).model_dump()
    names = {field.alias: name for name, field in settings.model_fields.items()}
    for option, cells in table.items():
        name = names[settings.aliases.get(option, option)]
        shown = cells[column].strip("`")
        if shown == "–":
            assert plain[name] in (None, (), ("S",), False), option
        else:
            said = settings.parse(given | {option: shown}).model_dump()[name]
            assert said == ("latest" if plain[name] is None else plain[name]), option


def test_what_is_for_batch_or_streaming_reads_only() -> None:
    values = {"endingTimestamp": "0", "maxTriggerDelay": "1s", "ackWait": "1s", "cipher": "aes"}
    values |= {"endingOffsets": "latest", "lastPerSubject": "true", "mode": "queue"}
    for option, (what_for, *_) in READING.items():
        if what_for == "both" or option == "consumer":
            continue
        value = values.get(option, "1")
        given = {"stream": "S", "consumer": "C"} if option == "mode" else {"stream": "S"}
        options = ReadOptions.parse(given | {option: value})
        with pytest.raises(DataSourceOptionsError):
            options.check_batch() if what_for == "stream" else options.check_stream()


def test_the_columns() -> None:
    table = rows_of("## Columns")
    assert {name: cells[0].strip("`") for name, cells in table.items()} == DDL


@pytest.mark.parametrize("module", pipeline.JOBS, ids=lambda module: module.NAME)
def test_every_argument_of_a_job_is_told(module: types.ModuleType) -> None:
    jobs = PAGE[PAGE.index("## The jobs") : PAGE.index("## Spark's sharp edges")]
    shared = jobs[: jobs.index("### ")]
    section = jobs[jobs.index(f"### {module.NAME}\n") :].split("\n### ")[0]
    parser = argparse.ArgumentParser(add_help=False)
    module.add_arguments(parser)
    for action in parser._actions:
        for flag in action.option_strings:
            if flag.startswith("--"):
                assert re.search(rf"`{flag}\b", section + shared), flag


def test_links_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (DOCS / target).exists(), target


# The notebook

PRINTED: Final = """\
+--------+--------+-------+-------+
| station|readings|coldest|warmest|
+--------+--------+-------+-------+
|     bay|    1440|   2.38|  18.37|
|    fell|    1440|    2.5|   18.5|
|moorland|    1440|    3.0|   19.0|
|    weir|    1440|    2.5|   18.5|
+--------+--------+-------+-------+

+-----------------+------------------------------+
|subject          |data                          |
+-----------------+------------------------------+
|readings.bay     |{"minute":1439,"degrees":4.74}|
|readings.fell    |{"minute":1439,"degrees":4.87}|
|readings.moorland|{"minute":1439,"degrees":5.37}|
|readings.weir    |{"minute":1439,"degrees":4.87}|
+-----------------+------------------------------+

5760 messages read, then 0
+---------------+-----+
|        subject|count|
+---------------+-----+
|    alarms.fell|   17|
|alarms.moorland|  163|
|    alarms.weir|   17|
+---------------+-----+

5760 messages in 4 files
5760 sequences
5760 messages on readings.html
"""


@pytest.mark.timeout(115)
def test_the_notebook_runs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    share(spark, monkeypatch)
    program = DOCS / "spark_example.py"
    out = io.StringIO()
    with settings_kept(spark), contextlib.redirect_stdout(out):
        exec(compile(program.read_text(), str(program), "exec"), {"__name__": "__main__"})
    assert out.getvalue() == PRINTED
