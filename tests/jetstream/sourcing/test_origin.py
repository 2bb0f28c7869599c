"""Requests to origins: names, subjects and bodies, as nats-server makes them."""

from __future__ import annotations

import pytest

from natsd.jetstream.models.consumer import AckPolicy, DeliverPolicy
from natsd.jetstream.models.stream import (
    ExternalStream,
    StreamConsumerSource,
    StreamSource,
    SubjectTransformConfig,
)
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.sourcing.origin import FilledStream, Origin, OriginStart, index_name

TARGET = FilledStream("S", "$G")
FILTERED = StreamSource(name="Q", filter_subject="q")
TRANSFORMED = StreamSource(name="Q", subject_transforms=[SubjectTransformConfig(src="r", dest="s")])
EXTERNAL = StreamSource(name="O", external=ExternalStream(api="$JS.hub.API", deliver="d"))


def source(of: StreamSource, *, is_shared: bool = False) -> Origin:
    return Origin(of, TARGET, is_mirror=False, is_shared=is_shared)


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        (
            Origin(StreamSource(name="O"), FilledStream("M", "$G"), is_mirror=True),
            "JS_MIRROR_ih8eMwqr",
        ),
        (source(StreamSource(name="P")), "JS_SRC_N6lXlrSF"),
        (source(FILTERED, is_shared=True), "JS_SRC_xYn2z7de"),
        (source(TRANSFORMED, is_shared=True), "JS_SRC_j3IRGNV6"),
    ],
)
def test_consumers_are_called_as_nats_server_calls_them(origin: Origin, name: str) -> None:
    assert origin.stable_name == name


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (StreamSource(name="O"), "O > >"),
        (FILTERED, "Q q >"),
        (TRANSFORMED, "Q r s"),
        (EXTERNAL, f"O:{short_hash(b'$JS.hub.API')} > >"),
    ],
)
def test_index_names(of: StreamSource, name: str) -> None:
    assert index_name(of) == name


def test_the_index_name_with_several_transforms_and_a_consumer() -> None:
    transforms = [
        SubjectTransformConfig(src="a", dest="b"),
        SubjectTransformConfig(src="c", dest=""),
    ]
    of = StreamSource(
        name="O",
        subject_transforms=transforms,
        consumer=StreamConsumerSource(name="C", deliver_subject="d"),
    )
    name, filters, destinations = index_name(of).split(" ")
    assert name.startswith("O:C=")
    assert (filters, destinations) == ("a\fc", "b\f>")
    assert source(of).header == (f"{name} ".encode(), b" a\x0cc b\x0c> ")


def test_the_request() -> None:
    origin = source(FILTERED)
    request = origin.request(OriginStart(7), "$JS.S.x")
    config = request.config
    assert origin.create_subject(request) == f"$JS.API.CONSUMER.CREATE.Q.{config.name}.q"
    assert (config.deliver_policy, config.opt_start_seq) == (DeliverPolicy.BY_START_SEQUENCE, 7)
    assert config.ack_policy is AckPolicy.NONE
    assert config.direct
    assert config.sourcing
    assert config.flow_control
    assert config.idle_heartbeat == 1_000_000_000
    assert config.inactive_threshold == 10_000_000_000
    assert config.metadata == {"_nats.src.stream": "S", "_nats.src.acc": "$G"}


def test_several_filters_go_into_the_body() -> None:
    transforms = [SubjectTransformConfig(src="a"), SubjectTransformConfig(src="b")]
    origin = source(StreamSource(name="O", subject_transforms=transforms))
    request = origin.request(OriginStart(), "$JS.S.x")
    assert origin.create_subject(request) == "$JS.API.CONSUMER.CREATE.O"
    assert request.config.filter_subjects == ["a", "b"]
    assert request.config.deliver_policy is DeliverPolicy.ALL


def test_elsewhere() -> None:
    origin = source(EXTERNAL)
    request = origin.request(OriginStart(time_ns=9), origin.delivery_subject("x"))
    assert origin.create_subject(request) == "$JS.hub.API.CONSUMER.CREATE.O"
    assert origin.delete_subject("c") == "$JS.hub.API.CONSUMER.DELETE.O.c"
    assert request.config.deliver_subject == "d.S.x"
    assert request.config.deliver_policy is DeliverPolicy.BY_START_TIME


def test_a_consumer_that_was_made_for_it() -> None:
    given = StreamConsumerSource(name="C", deliver_subject="to.me")
    origin = source(StreamSource(name="O", consumer=given))
    assert origin.delivery_subject("x") == "to.me"
    assert origin.reset_subject == "$JS.API.CONSUMER.RESET.O.C"
