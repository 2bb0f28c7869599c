"""Models read and write JSON as the structs of nats-server do; texts recorded from 2.14.5."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.models.base import Model
from natsd.jetstream.models.consumer import ConsumerConfig, SequenceInfo
from natsd.jetstream.models.go_json import (
    InvalidJson,
    decode,
    encode,
    is_empty_object,
    is_object_or_array,
)
from natsd.jetstream.models.requests import (
    ConsumerPauseRequest,
    ConsumerUnpinRequest,
    CreateConsumerRequest,
    StreamConfigRequest,
    StreamInfoRequest,
    StreamMsgGetRequest,
)
from natsd.jetstream.models.responses import StreamInfoResponse, StreamNamesResponse
from natsd.jetstream.models.stream import (
    DiscardPolicy,
    PersistMode,
    ReturnedMessage,
    StreamConfig,
    StreamInfo,
    StreamState,
)

FIELD = (
    "json: cannot unmarshal {} into Go struct field StreamConfigRequest.StreamConfig.{} of type {}"
)
NESTED = "json: cannot unmarshal {} into Go struct field {} of type {}"

REFUSED_STREAMS = [
    ('{"foo":1}', 'json: unknown field "foo"'),
    ('{"placement":{"foo":1}}', 'json: unknown field "foo"'),
    ('{"max_msgs":"x"}', FIELD.format("string", "max_msgs", "int64")),
    ('{"max_msgs":1.5}', FIELD.format("number 1.5", "max_msgs", "int64")),
    ('{"max_msgs":1e3}', FIELD.format("number 1e3", "max_msgs", "int64")),
    ('{"max_msgs":' + "9" * 20 + "}", FIELD.format("number " + "9" * 20, "max_msgs", "int64")),
    ('{"max_msgs":true}', FIELD.format("bool", "max_msgs", "int64")),
    ('{"max_msg_size":4294967296}', FIELD.format("number 4294967296", "max_msg_size", "int32")),
    ('{"first_seq":-1}', FIELD.format("number -1", "first_seq", "uint64")),
    ('{"max_age":"1s"}', FIELD.format("string", "max_age", "time.Duration")),
    ('{"subjects":"x"}', FIELD.format("string", "subjects", "[]string")),
    ('{"subjects":[1]}', FIELD.format("number", "subjects", "string")),
    ('{"no_ack":"true"}', FIELD.format("string", "no_ack", "bool")),
    ('{"metadata":{"a":1}}', FIELD.format("number", "metadata", "string")),
    ('{"placement":[]}', FIELD.format("array", "placement", "server.Placement")),
    (
        '{"republish":{"dest":1}}',
        NESTED.format("number", "RePublish.StreamConfig.republish.dest", "string"),
    ),
    (
        '{"sources":[{"name":1}]}',
        NESTED.format("number", "StreamSource.StreamConfig.sources.name", "string"),
    ),
    ('{"retention":"x"}', 'can not unmarshal "\\"x\\""'),
    ('{"retention":null}', 'can not unmarshal "null"'),
    ('{"retention":1}', 'can not unmarshal "1"'),
    ('{"storage":""}', 'can not unmarshal "\\"\\""'),
    ('{"compression":"x"}', "unknown compression algorithm"),
    ('{"compression":null}', "unknown compression algorithm"),
    ('{"compression":1}', FIELD.format("number", "compression", "string")),
    ('{"compression":["a"]}', FIELD.format("array", "compression", "string")),
    ('{"sources":"x"}', FIELD.format("string", "sources", "[]*server.StreamSource")),
    ('{"sources":[1]}', FIELD.format("number", "sources", "server.StreamSource")),
    (
        '{"sources":[{"subject_transforms":1}]}',
        NESTED.format(
            "number",
            "StreamSource.StreamConfig.sources.subject_transforms",
            "[]server.SubjectTransformConfig",
        ),
    ),
    ('{"name":"S"}x', "invalid character 'x' looking for beginning of value at offset 13"),
    ('{"name":"S"}{"a":]', "invalid character ']' looking for beginning of value at offset 18"),
    ('{"name":"S"}{"max_msgs":"x"}', FIELD.format("string", "max_msgs", "int64")),
    ('{"max_msgs":"x"}{"max_msgs":1}', FIELD.format("string", "max_msgs", "int64")),
    ("{}[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
    ("{}" * 9, "too many values"),  # a limit of natsd; no client sends as many
    (
        '{"mirror":{"name":"X","opt_start_time":"now"}}',
        'parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"',
    ),
    ("[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
    ('"x"', "json: cannot unmarshal string into Go value of type server.StreamConfigRequest"),
    ("12", "json: cannot unmarshal number into Go value of type server.StreamConfigRequest"),
    ("hello", "invalid character 'h' looking for beginning of value at offset 1"),
    ("{", "unexpected EOF"),
]

REFUSED_CONSUMERS = [
    ('{"action":"x"}', 'unknown consumer action: "x"'),
    ('{"config":{"priority_policy":"x"}}', 'unknown priority policy: "x"'),
    (
        '{"config":{"max_deliver":"x"}}',
        NESTED.format("string", "ConsumerConfig.config.max_deliver", "int"),
    ),
    (
        '{"config":{"backoff":["1s"]}}',
        NESTED.format("string", "ConsumerConfig.config.backoff", "time.Duration"),
    ),
]


@pytest.mark.parametrize(("body", "text"), REFUSED_STREAMS)
def test_a_stream_request_is_refused_in_gos_words(body: str, text: str) -> None:
    with pytest.raises(InvalidJson) as raised:
        decode(StreamConfigRequest, body.encode())
    assert str(raised.value) == text


@pytest.mark.parametrize(("body", "text"), REFUSED_CONSUMERS)
def test_a_consumer_request_is_refused_in_gos_words(body: str, text: str) -> None:
    with pytest.raises(InvalidJson) as raised:
        decode(CreateConsumerRequest, body.encode())
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "unexpected end of JSON input"),
        (b" ", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"{}x", "invalid character 'x' after top-level value"),
        (b"{}{}", "invalid character '{' after top-level value"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (
            b"1",
            "json: cannot unmarshal number into Go value of type server.JSApiConsumerUnpinRequest",
        ),
    ],
)
def test_a_body_that_is_to_be_one_value(body: bytes, text: str) -> None:
    """UNPIN and RESET use Go's `json.Unmarshal`, whose errors have other texts and no offsets."""
    with pytest.raises(InvalidJson) as raised:
        decode(ConsumerUnpinRequest, body, is_one_value=True)
    assert str(raised.value) == text


def test_several_values_are_said_one_after_the_other() -> None:
    """A later value adds members to objects and replaces all else; `null` changes nothing."""
    body = b'{"name":"S","subjects":["a"],"metadata":{"a":"1"}} {"subjects":["b","c"],'
    request = decode(StreamConfigRequest, body + b'"metadata":{"b":"2"}}null\n{"max_msgs":5}')
    assert request.config.name == "S" and request.config.max_msgs == 5
    assert request.config.subjects == ["b", "c"]
    assert request.config.metadata == {"a": "1", "b": "2"}


def test_null_in_a_list_is_the_zero_value() -> None:
    """A null item becomes an empty one, which the rules of the field accept or refuse."""
    body = b'{"subjects":[null,"a"],"sources":[null],"metadata":{"a":null}}'
    config = decode(StreamConfigRequest, body).config
    assert config.subjects == ["", "a"]
    assert [source.name for source in config.sources] == [""]
    assert config.metadata == {"a": ""}


def test_other_requests_name_their_own_structs() -> None:
    with pytest.raises(InvalidJson, match=r"field JSApiStreamInfoRequest\.subjects_filter of type"):
        decode(StreamInfoRequest, b'{"subjects_filter":1}')
    with pytest.raises(InvalidJson, match=r"JSApiStreamInfoRequest\.ApiPagedRequest\.offset"):
        decode(StreamInfoRequest, b'{"offset":"1"}')
    with pytest.raises(InvalidJson, match="input is not a JSON string"):
        decode(ConsumerPauseRequest, b'{"pause_until":1}')


def test_unknown_fields_are_nothing_when_not_strict() -> None:
    request = decode(StreamConfigRequest, b'{"name":"S","foo":1,"placement":{"x":1}}', strict=False)
    assert request.config.name == "S"


def test_what_go_takes() -> None:
    """Names in any case are read, null is nothing, and words may have other forms."""
    request = decode(
        StreamConfigRequest,
        b' {"NAME":"S","Max_Msgs":null,"discard":"NEW","persist_mode":"","pedantic":true}\n',
    )
    assert request.config == StreamConfig(
        name="S", discard=DiscardPolicy.NEW, persist_mode=PersistMode.DEFAULT
    )
    assert request.pedantic
    assert decode(CreateConsumerRequest, b'{"config":{"deliver_policy":"undefined"}}').config == (
        ConsumerConfig()
    )
    for nothing in (b"", b"null", b"{}", b" \n"):
        assert decode(StreamMsgGetRequest, nothing) == StreamMsgGetRequest()


def test_halves_of_surrogates_become_replacement_characters() -> None:
    request = decode(
        StreamConfigRequest, b'{"name":"a\\ud800b","description":"\\ud83d\\ude00\xff"}'
    )
    assert (request.name, request.description) == ("a\ufffdb", "\U0001f600\ufffd")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\xff\xfe", "invalid character '\u00ff' looking for beginning of value at offset 1"),
        (b"{}\xff", "invalid character '\u00ff' looking for beginning of value at offset 3"),
        (
            b'{"name":"\xe2\x82\xff"} x',
            "invalid character 'x' looking for beginning of value at offset 16",
        ),
        (
            b'{"name":"\xc3\xa9",\xc3\xa9}',
            "invalid character '\u00c3' looking for beginning of object key string at offset 14",
        ),
    ],
)
def test_errors_count_the_bytes_that_came_though_they_are_no_text(body: bytes, text: str) -> None:
    with pytest.raises(InvalidJson) as raised:
        decode(StreamConfigRequest, body)
    assert str(raised.value) == text


def test_each_byte_that_is_no_text_becomes_a_replacement_character() -> None:
    request = decode(
        StreamConfigRequest, b'{"name":"a\xe2\x82b","description":"\\ud83d\xed\xb8\x80"}'
    )
    assert request.name == "a\ufffd\ufffdb"
    assert request.description == "\ufffd" * 4


def test_configurations_are_written_as_gos_are() -> None:
    config = StreamConfig(name="S", subjects=["a.>"], metadata={"b": "<&>", "a": "1"})
    assert encode(config) == (
        b'{"name":"S","subjects":["a.\\u003e"],"retention":"limits","max_consumers":0,"max_msgs":0,'
        b'"max_bytes":0,"max_age":0,"max_msgs_per_subject":0,"discard":"old","storage":"file",'
        b'"num_replicas":0,"compression":"none","allow_direct":false,"mirror_direct":false,'
        b'"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,'
        b'"consumer_limits":{},"allow_msg_ttl":false,'
        b'"metadata":{"a":"1","b":"\\u003c\\u0026\\u003e"}}'
    )
    assert encode(ConsumerConfig(durable_name="C")) == (
        b'{"durable_name":"C","deliver_policy":"all","ack_policy":"none","replay_policy":"instant",'
        b'"num_replicas":0}'
    )


def test_answers_are_written_as_gos_are() -> None:
    assert encode(StreamInfoResponse()) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"offset":0,"limit":0}'
    )
    assert encode(StreamNamesResponse(streams=["S"])) == (
        b'{"type":"io.nats.jetstream.api.v1.stream_names_response","total":0,"offset":0,"limit":0,'
        b'"streams":["S"]}'
    )
    info = StreamInfo(config=StreamConfig(name="S"), created=0, state=StreamState(), ts=1)
    written = json.loads(encode(StreamInfoResponse(info=info)))
    assert list(written)[:8] == [
        "type", "total", "offset", "limit", "config", "created", "state", "ts"
    ]  # fmt: skip
    assert written["created"] == "0001-01-01T00:00:00Z"
    assert encode(ReturnedMessage(subject="s", seq=1, data=b"\xff", time=0)) == (
        b'{"subject":"s","seq":1,"data":"/w==","time":"0001-01-01T00:00:00Z"}'
    )
    start = SequenceInfo(consumer_seq=0, stream_seq=0)
    assert encode(start) == b'{"consumer_seq":0,"stream_seq":0}'


@pytest.mark.parametrize(
    ("body", "is_empty"),
    [(b"", True), (b"{}", True), (b" { } ", True), (b"{}x", False), (b"[]", False), (b"x", False)],
)
def test_what_an_empty_request_may_hold(body: bytes, is_empty: bool) -> None:
    assert is_empty_object(body) is is_empty


def test_what_looks_like_a_body() -> None:
    assert is_object_or_array(b" \n{") and is_object_or_array(b"[")
    assert not is_object_or_array(b"") and not is_object_or_array(b"nope")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from([*StreamConfig.model_fields, "pedantic", "Nope"])


@given(st.dictionaries(FIELDS, JSON_VALUES, max_size=4), st.booleans())
def test_any_member_is_read_or_refused(members: dict[str, Any], strict: bool) -> None:
    """Every accepted body can be written, and is equal when it is read again."""
    with contextlib.suppress(InvalidJson):
        request = decode(StreamConfigRequest, json.dumps(members).encode(), strict=strict)
        assert decode(StreamConfigRequest, encode(request)) == request


@given(st.binary(max_size=60), st.sampled_from([StreamConfigRequest, CreateConsumerRequest]))
def test_any_bytes_are_read_or_refused(body: bytes, model: type[Model]) -> None:
    with contextlib.suppress(InvalidJson):
        assert isinstance(decode(model, body), model)
