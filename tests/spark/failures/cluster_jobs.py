"""Two jobs of natsd in one process on a cluster: stream to stream, and stream to archive.

    python cluster_jobs.py '{"master": …, "url": …, "from": …, "to": …, "directory": …}'

It writes the results of both as one JSON object. test_cluster.py starts it, with natsd from a
wheel.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from natsd.spark.jobs.archive import archive
from natsd.spark.jobs.transform import transform
from natsd.spark.session import make_session

AT_ONCE = 1600


def renamed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("concat('copy.', subject) AS subject", "data", "headers")


def main(given: dict[str, Any]) -> dict[str, Any]:
    spark = make_session(given["master"], "natsd on a cluster", given["settings"])
    server = {"servers": given["url"]}
    source = {**server, "stream": given["from"], "maxMsgsPerTrigger": str(AT_ONCE)}
    directory = Path(given["directory"])
    has_begun = threading.Event()
    with ThreadPoolExecutor(2) as both:
        copied = both.submit(
            transform,
            spark,
            {**source, "minPartitions": "2"},
            renamed,
            checkpoint=str(directory / "checkpoint"),
            into_stream={**server, "stream": given["to"]},
            advance=lambda _: has_begun.set(),
        )
        copied.add_done_callback(lambda _: has_begun.set())
        has_begun.wait()  # one after the other: Spark waits 10 s for a Python to start
        archived = both.submit(archive, spark, source, str(directory / "table"))
        result = {"copied": copied.result().as_json(), "archived": archived.result().as_json()}
    spark.stop()
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
