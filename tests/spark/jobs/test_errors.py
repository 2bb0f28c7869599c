"""Spark's exceptions are reported in one line: natsd/spark/jobs/errors.py."""

from natsd.spark.jobs.errors import JobError, reason_of

WRAPPED = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Failed: Traceback (most recent call last):
  File "/site/natsd/spark/reader/streams.py", line 89, in state
    raise StreamMissing(
natsd.spark.reader.streams.StreamMissing: there is no stream "A": it was never created
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.error(QueryExecutionErrors.scala:1890)
"""
CHAINED = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "a.py", line 1, in a
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 1, in b
natsd.spark.jobs.errors.JobError: the table is full: make room
"""
IN_JAVA = """\
An error occurred while calling o53.load.
: java.io.IOException: Cannot run program "./python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""


def test_what_was_raised_at_the_end_of_the_last_trace() -> None:
    assert reason_of(Exception(WRAPPED)) == 'there is no stream "A": it was never created'
    assert reason_of(Exception(CHAINED)) == "the table is full: make room"


def test_without_a_trace_it_is_the_first_line() -> None:
    assert reason_of(JobError("no such thing: look again")) == "no such thing: look again"
    assert (
        reason_of(Exception("\n[TABLE_NOT_FOUND] no table\nmore")) == "[TABLE_NOT_FOUND] no table"
    )
    assert reason_of(ValueError()) == "ValueError()"


def test_what_java_raised() -> None:
    assert reason_of(Exception(IN_JAVA)) == (
        'IOException: Cannot run program "./python": error=2, No such file or directory'
    )
