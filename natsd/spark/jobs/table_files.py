"""Files of a table on any file system that Spark can open: a disk, HDFS, an object store.

    files = TableFiles(spark, "hdfs://nn/archive/orders")
    files.move("_natsd/staging/part.parquet", "day=2026-11-21/part.parquet")

Promise
- Paths are relative to the table's root, with `/` between names.
- Spark's Hadoop configuration is used: `spark.read` and this module can open the same paths.

Source: Hadoop's FileSystem, through the gateway of a classic SparkSession.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsd.spark.jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableFiles:
    """The files below one root. Methods block on the file system."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Open the root. Raises JobError if the session has no gateway, or the root is invalid."""
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise JobError("a table needs a classic SparkSession; this is a Spark Connect one")
        try:
            root_path = self._jvm.org.apache.hadoop.fs.Path(root)
            self._system = root_path.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root = self._system.makeQualified(root_path)
            uri = self._root.toUri()
            is_local, directory = str(uri.getScheme()) == "file", str(uri.getPath())
        except Exception as error:  # the gateway's errors have no narrower public class
            raise JobError(f"{root}: Spark cannot open it: {_first_line(error)}") from None
        self._local = Path(directory) if is_local else None

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

    def move(self, source: str, target: str) -> None:
        """Move a file to a new name, and create the target's directory. Raises JobError."""
        before, after = self._path(source), self._path(target)
        self._system.mkdirs(after.getParent())
        if not self._system.rename(before, after):
            raise JobError(f"{before.toString()}: it cannot be moved to {after.toString()}")

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; do nothing if it does not exist."""
        self._system.delete(self._path(path), True)

    def sync(self, paths: Iterable[str]) -> None:
        """Sync files and their directories, if they are on a disk of this machine.

        Other file systems have stored a file when it is closed.
        """
        if self._local is None:
            return
        files = {self._local / path for path in paths}
        above = {one for file in files for one in file.parents}
        directories = {one for one in above if one.is_relative_to(self._local)}
        for path in (*files, *directories):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else "")
