"""Files of a table on any file system that Spark can open: a disk, HDFS, an object store.

    files = TableFiles(spark, "hdfs://nn/archive/orders")
    files.create("_natsd/log/000000000001.json", b"{}")   # whole, or not at all

Promise
- Paths are relative to the table's root, with `/` between names.
- `create` renames the file to its name after all bytes are written, and refuses an existing name.
  On a file system that renames by copying (an object store), it is as atomic as a copy there.
- Spark's Hadoop configuration is used: `spark.read` and this module can open the same paths.

Source: Hadoop's FileSystem and FileContext, through the gateway of a classic SparkSession.
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
"""Maximum bytes that `read` returns; files of a table's log are far smaller."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file below the root: its relative path, and its size in bytes."""

    path: str
    size_bytes: int


class TableFiles:
    """The files below one root. Methods block on the file system."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Open the root. Raises JobError if the session has no gateway, or the root is invalid."""
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
        except Exception as error:  # the gateway's errors have no narrower public class
            raise JobError(f"{root}: Spark cannot open it: {_first_line(error)}") from None

    @property
    def root(self) -> str:
        """Path of the root with its scheme."""
        return str(self._root.toString())

    def absolute(self, path: str) -> str:
        """Return the absolute path of a file below the root."""
        return str(self._path(path).toString())

    def exists(self, path: str) -> bool:
        """Return whether the file or directory exists."""
        return bool(self._system.exists(self._path(path)))

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(path))

    def below(self, directory: str) -> Iterator[TableFile]:
        """Yield all files below a directory, in any order."""
        path = self._path(directory)
        if not self._system.exists(path):
            return
        prefix = len(str(self._root.toUri().getPath()).rstrip("/")) + 1
        found = self._system.listFiles(path, True)
        while found.hasNext():
            status = found.next()
            yield TableFile(str(status.getPath().toUri().getPath())[prefix:], int(status.getLen()))

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file. Raises JobError if it does not exist."""
        opened = self._path(path)
        if not self._system.exists(opened):
            raise JobError(f"{opened.toString()}: there is no such file")
        stream = self._system.open(opened)
        try:
            return bytes(stream.readNBytes(READ_BYTES_MAX))
        finally:
            stream.close()

    def create(self, path: str, data: bytes) -> None:
        """Write a new file. Raises JobError if it exists, and leaves it unchanged."""
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
        """Move a file, and create the target's directory; do nothing if it was moved before."""
        before, after = self._path(source), self._path(target)
        if not self._system.exists(before) and self._system.exists(after):
            return
        self._system.mkdirs(after.getParent())
        self._rename(before, after)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; do nothing if it does not exist."""
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
