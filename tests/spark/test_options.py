"""Options: their names, values, and one-line errors."""

from __future__ import annotations

from typing import Any

import pytest

from natsd.spark.options import DataSourceOptionsError, ReadOptions


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"stream": "ORDERS"} | options)


def test_defaults() -> None:
    options = parse()
    assert options.connect.servers == ("nats://127.0.0.1:4222",)
    assert options.column_names == (
        "stream",
        "seq",
        "subject",
        "time",
        "time_ns",
        "headers",
        "data",
    )
    assert options.named_streams == ("ORDERS",)
    assert options.fail_on_data_loss
    assert (options.starting_offsets, options.ending_offsets) == (None, None)


def test_names_are_found_whatever_their_case_and_kafkas_too() -> None:
    options = parse(MAXOFFSETSPERTRIGGER="7", failondataloss="false", Subject="a.>, b", tlsca="/c")
    assert options.max_msgs_per_trigger == 7
    assert not options.fail_on_data_loss
    assert options.subjects == ("a.>", "b")
    assert options.connect.tls_ca == "/c"


def test_all_of_the_connection() -> None:
    connect = parse(
        servers="nats://a:4222, tls://b",
        user="u",
        password="p",
        requestTimeout="1m1.5s",
        retryInterval="20ms",
        numRetries="0",
        domain="hub",
    ).connect
    assert connect.servers == ("nats://a:4222", "tls://b")
    assert (connect.user, connect.password) == ("u", "p")
    assert connect.request_timeout_s == 61.5
    assert connect.retry_interval_s == 0.02
    assert connect.retries == 0
    assert connect.api == "$JS.hub.API"


def test_columns() -> None:
    assert parse(columns="seq,data").column_names == ("seq", "data")
    assert "headers" not in parse(includeHeaders="false").column_names


def test_offsets_and_times() -> None:
    assert parse(startingOffsets="Earliest").starting_offsets == "earliest"
    assert parse(startingOffsets='{"ORDERS": 7}').starting_offsets == {"ORDERS": 7}
    assert parse(startingTimestamp="1000").starting_timestamp == 1_000_000_000
    options = parse(endingTimestamp="2026-11-21T13:00:00.123456789+01:00")
    assert options.ending_timestamp == 1_795_262_400_123_456_789


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"maxMsgPerTrigger": "1"},
            'no option "maxMsgPerTrigger": do you mean "maxMsgsPerTrigger"?',
        ),
        ({"qwertz": "1"}, 'no option "qwertz"'),
        ({"subject": "a", "subjects": "b"}, 'option "subjects" is given twice'),
        ({"streams": "A,B"}, 'give one of "stream", "streams" and "streamsPattern"'),
        ({"stream": "a.b"}, '"a.b" is no name of a stream'),
        ({"startingOffsets": "first"}, 'option "startingOffsets": is no offset: write "earliest"'),
        ({"startingOffsets": '{"ORDERS": 0}'}, 'option "startingOffsets": is no offset'),
        ({"startingTimestamp": "yesterday"}, 'option "startingTimestamp": is no time'),
        ({"startingTimestamp": "2026-11-21T13:00:00"}, 'option "startingTimestamp": is no time'),
        ({"requestTimeout": "5"}, 'option "requestTimeout": is no duration'),
        ({"maxMsgsPerTrigger": "0"}, 'option "maxMsgsPerTrigger": Input should be greater than 0'),
        ({"failOnDataLoss": "perhaps"}, 'option "failOnDataLoss": Input should be a valid boolean'),
        ({"subjects": "a..b"}, 'option "subjects": "a..b" is no subject'),
        ({"subjects": "a.*,*.b"}, 'option "subjects": "a.*" and "*.b" overlap'),
        ({"columns": "seq,payload"}, 'option "columns": there is no column "payload"'),
        ({"servers": "http://h"}, 'option "servers": "http://h" is no server address'),
        ({"user": "u"}, "user and password belong together"),
        ({"domain": "a", "apiPrefix": "b"}, "domain and apiPrefix exclude each other"),
        ({"mode": "queue"}, 'mode "queue" needs the option "consumer"'),
        ({"consumer": "c"}, 'option "consumer" is for mode "queue"'),
        ({"endingOffsets": "earliest"}, 'endingOffsets cannot be "earliest"'),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(DataSourceOptionsError) as error:
        parse(**given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_secrets_are_never_shown() -> None:
    shown = repr(parse(user="u", password="hush", token="hush", servers="nats://u:hush@h"))
    assert "hush" not in shown
    with pytest.raises(DataSourceOptionsError) as error:
        parse(servers="x://u:hush@h", password="hush", user="u", tls="hush")
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("batch", {"maxMsgsPerTrigger": "1"}, '"maxMsgsPerTrigger" is for streaming reads'),
        ("batch", {"cipher": "aes"}, '"cipher" is for reading a store directory'),
        ("batch", {"mode": "queue", "consumer": "c"}, 'mode "queue" is for streaming reads'),
        ("stream", {"endingOffsets": "latest"}, '"endingOffsets" is for batch reads'),
        ("stream", {"storeDir": "/x"}, '"storeDir" is for batch reads'),
        (
            "stream",
            {"mode": "queue", "consumer": "c", "startingOffsets": "latest"},
            '"startingOffsets" is for mode "log"',
        ),
    ],
)
def test_what_is_for_the_other_kind_of_read(kind: str, given: dict[str, str], said: str) -> None:
    options: Any = parse(**given)
    with pytest.raises(DataSourceOptionsError) as error:
        options.check_batch() if kind == "batch" else options.check_stream()
    assert said in str(error.value)
