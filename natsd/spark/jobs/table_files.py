"""The files of a table, wherever Spark can reach: a disk, HDFS, an object store.

    files = TableFiles(spark, "hdfs://nn/archive/orders")
    files.create("_natsd/log/000000000001.json", b"{}")   # whole, or not at all

Promise
- Paths are relative to the table's root, with `/` between names.
- `create` gives the file its name once all of its bytes are written, and refuses a name that is
  taken. Where renaming copies (an object store), it is as atomic as a copy there.
- Spark's own Hadoop configuration is used: what `spark.read` can open, this can.

Source: Hadoop's FileSystem and FileContext, through the gateway that a classic SparkSession has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_BYTES_MAX: Final = 64 << 20
"""A file of a table's log is never nearly as long."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file below the root: its path from there, and its size."""

    path: str
    size_bytes: int


class TableFiles:
    """The files below one root."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises JobError on a session that has no gateway, and on a root that cannot be one."""
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise JobError("a table needs a classic SparkSession; this is a Spark Connect one")
        configuration = spark._jsc.hadoopConfiguration()
        try:
            root_path = self._jvm.org.apache.hadoop.fs.Path(root)
            self._system = root_path.getFileSystem(configuration)
            self._root = self._system.makeQualified(root_path)
            self._context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._root.toUri(), configuration
            )
        except Exception as error:  # what the gateway raises has no narrower class that is public
            raise JobError(f"{root}: Spark cannot open it: {_first_line(error)}") from None

    @property
    def root(self) -> str:
        """The root with its scheme."""
        return str(self._root.toString())

    def absolute(self, path: str) -> str:
        """The whole path of a file below the root."""
        return str(self._path(path).toString())

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._system.exists(self._path(path)))

    def names(self, directory: str) -> list[str]:
        """Names in a directory, in order; none where it is not there."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(path))

    def below(self, directory: str) -> Iterator[TableFile]:
        """All files below a directory, in any order, paths relative to the root."""
        path = self._path(directory)
        if not self._system.exists(path):
            return
        prefix = len(str(self._root.toUri().getPath()).rstrip("/")) + 1
        found = self._system.listFiles(path, True)
        while found.hasNext():
            status = found.next()
            yield TableFile(str(status.getPath().toUri().getPath())[prefix:], int(status.getLen()))

    def read(self, path: str) -> bytes:
        """A small file's bytes. Raises JobError for one that is not there."""
        opened = self._path(path)
        if not self._system.exists(opened):
            raise JobError(f"{opened.toString()}: there is no such file")
        stream = self._system.open(opened)
        try:
            return bytes(stream.readNBytes(READ_BYTES_MAX))
        finally:
            stream.close()

    def create(self, path: str, data: bytes) -> None:
        """Write a file that was not there. Raises JobError where it was, which is left as it is."""
        final = self._path(path)
        unfinished = self._path(f"{path}.unfinished")
        stream = self._system.create(unfinished, True)
        with contextlib.closing(stream):
            stream.write(bytearray(data))
            stream.hsync()
        if self._system.exists(final):
            self._system.delete(unfinished, False)
            raise JobError(
                f"{final.toString()}: another job has just written it; run one at a time"
            )
        self._rename(unfinished, final)

    def move(self, source: str, target: str) -> None:
        """Give a file another path; the target's directory is made. No-op where that was done."""
        before, after = self._path(source), self._path(target)
        if not self._system.exists(before) and self._system.exists(after):
            return
        self._system.mkdirs(after.getParent())
        self._rename(before, after)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; nothing happens if it is gone."""
        self._system.delete(self._path(path), True)

    def _rename(self, before: Any, after: Any) -> None:
        option = self._jvm.org.apache.hadoop.fs.Options.Rename.NONE
        options = self._jvm.java.lang.reflect.Array.newInstance(option.getClass(), 1)
        options[0] = option
        self._context.rename(before, after, options)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else "")
