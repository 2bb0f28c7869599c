"""Sensors: a stream as a table, in batches and as a live query.

This is a notebook in plain Python: run the whole file (`python docs/spark_example.py`), or run it
cell by cell in an editor that supports `# %%`. It needs `pip install 'natsd[spark]'` and Java 17,
and starts its own server. docs/spark.md explains the options and the guarantees.
"""

# %% Start a server in this program, and a Spark session
import contextlib
import tempfile
from pathlib import Path

from pyspark.sql import functions as F

import natsd
from natsd.spark.jobs.archive import archive, read_archive
from natsd.spark.jobs.report import report
from natsd.spark.session import make_session
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions

everything = contextlib.ExitStack()
directory = Path(everything.enter_context(tempfile.TemporaryDirectory()))
server = everything.enter_context(natsd.Server(port=-1, jetstream=True, thread=True))
servers = {"servers": server.client_url}
spark = make_session()
spark.conf.set("spark.sql.shuffle.partitions", "2")  # few stations, few partitions

# %% Create two streams: one for readings, one for alarms
with NatsClient(ClientOptions(servers=(server.client_url,))) as client:
    for name, subject in [("READINGS", "readings.*"), ("ALARMS", "alarms.*")]:
        config = {"name": name, "subjects": [subject], "allow_direct": True}
        client.api(f"STREAM.CREATE.{name}", config)

# %% Write a day of readings of four stations with Spark, one reading per minute and station
minutes = spark.range(24 * 60).withColumnRenamed("id", "minute")
stations = spark.createDataFrame(
    [(name,) for name in ("bay", "fell", "moorland", "weir")], "station STRING"
)
degrees = F.round(10 + 8 * F.sin((F.col("minute") - 540) / 229.2) + F.length("station") / 8, 2)
readings = minutes.crossJoin(stations).select(
    F.concat(F.lit("readings."), "station").alias("subject"),
    F.to_json(F.struct("minute", degrees.alias("degrees"))).alias("data"),
    # A join may give its rows in another order when a task is tried again, so each row has an id.
    F.concat_ws("-", "station", "minute").alias("id"),
)
readings.write.format("jetstream").options(**servers).mode("append").save()

# %% Read the stream as a table
messages = spark.read.format("jetstream").options(**servers, stream="READINGS").load()
table = messages.select(
    F.split("subject", "[.]")[1].alias("station"),
    F.from_json(F.col("data").cast("string"), "minute INT, degrees DOUBLE").alias("reading"),
).select("station", "reading.*")
by_station = table.groupBy("station").agg(
    F.count("*").alias("readings"),
    F.min("degrees").alias("coldest"),
    F.max("degrees").alias("warmest"),
)
by_station.orderBy("station").show()

# %% Read the last reading of each station: the server sends only these four messages
last = (
    spark.read.format("jetstream")
    .options(**servers, stream="READINGS", lastPerSubject=True, columns="subject,data")
    .load()
)
last.select("subject", F.col("data").cast("string")).orderBy("subject").show(truncate=False)

# %% Write alarms with a live query, each exactly once, even after restarts
live = (
    spark.readStream.format("jetstream")
    .options(**servers, stream="READINGS", startingOffsets="earliest", maxMsgsPerTrigger=2000)
    .load()
)
alarms = live.where(
    "CAST(get_json_object(CAST(data AS STRING), '$.degrees') AS DOUBLE) > 18.49"
).selectExpr("replace(subject, 'readings', 'alarms') AS subject", "data")


def watch() -> int:
    """Process the new messages. Return the number of messages read."""
    query = (
        alarms.writeStream.format("jetstream")
        .options(**servers, stream="ALARMS", checkpointLocation=str(directory / "alarms"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


print(watch(), "messages read, then", watch())
raised = (
    spark.read.format("jetstream").options(**servers, stream="ALARMS", columns="subject").load()
)
raised.groupBy("subject").count().orderBy("subject").show()

# %% Archive the stream as a Delta table by day and station, each message once
done = archive(
    spark, {**servers, "stream": "READINGS"}, str(directory / "archive"), tokens={"station": 2}
)
print(f"{done.added} messages in {done.files} files")
print(read_archive(spark, str(directory / "archive")).select("seq").distinct().count(), "sequences")

# %% Write a report, as one page
page = report(messages, directory / "readings.html", title="Readings")
print(page.numbers.totals[0]["messages"], "messages on", Path(page.page).name)

# %% Stop Spark and the server
spark.stop()
everything.close()
