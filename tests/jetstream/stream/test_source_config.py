"""The rules of mirrors and sources, and their errors (nats-server's `checkStreamCfg`).

The tables were recorded from nats-server 2.14.5.
"""

from __future__ import annotations

from typing import Any

import pytest

from natsd.core.steps import at_once
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.stream import StreamConfig, StreamSource
from natsd.jetstream.stream.config import ConfigRules, check_change, check_config
from natsd.jetstream.stream.source_config import check_filters, check_sourcing, identity

SECOND = 1_000_000_000


def stream(name: str, **fields: Any) -> StreamConfig:
    return StreamConfig.model_validate({"name": name, **fields})


ORIGIN = stream("O", subjects=["o.>"], max_msg_size=100, allow_direct=True)
"""The streams of the account; S is the stream under test."""


def checked(*others: StreamConfig, pedantic: bool = False, **fields: Any) -> StreamConfig:
    origins = {each.name: each for each in (ORIGIN, *others)}
    return at_once(check_sourcing(stream("S", **fields), origins.get, pedantic=pedantic))


def mirror(**fields: Any) -> dict[str, Any]:
    return {"mirror": {"name": "O", **fields}}


def sources(*each: dict[str, Any]) -> dict[str, Any]:
    return {"sources": [{"name": "O", **fields} for fields in each]}


def transforms(*each: tuple[str, str]) -> dict[str, Any]:
    return {"subject_transforms": [{"src": src, "dest": dest} for src, dest in each]}


def through(name: str = "C", deliver: str = "d", **fields: Any) -> dict[str, Any]:
    return {"consumer": {"name": name, "deliver_subject": deliver}, **fields}


def external(api: str = "", deliver: str = "") -> dict[str, Any]:
    return {"external": {"api": api, "deliver": deliver}}


TIME = "2026-01-01T00:00:00Z"
BAD_CONSUMER = "stream {} consumer config is invalid"
DESTINATION = "invalid mapping destination: wildcard index out of range in {{wildcard(2)}}: [2]"

REFUSED: list[tuple[dict[str, Any], tuple[int, str]]] = [
    # Settings that a mirror may not have
    (
        mirror() | {"first_seq": 7},
        (10143, "stream mirrors can not have first sequence configured"),
    ),
    (mirror() | {"subjects": ["a"]}, (10034, "stream mirrors can not contain subjects")),
    (mirror() | sources({}), (10031, "stream mirrors can not also contain other sources")),
    (
        mirror() | {"allow_msg_counter": True},
        (10173, "stream mirrors can not also calculate counters"),
    ),
    (
        mirror() | {"allow_atomic": True},
        (10198, "stream mirrors can not also use atomic publishing"),
    ),
    (
        mirror() | {"allow_batched": True},
        (10209, "stream mirrors can not also use batch publishing"),
    ),
    (
        mirror() | {"allow_msg_schedules": True},
        (10186, "stream mirrors can not also schedule messages"),
    ),
    (
        mirror() | {"subject_delete_marker_ttl": SECOND},
        (10052, "subject delete markers forbidden on mirrors"),
    ),
    # A mirror's settings about its origin
    (mirror(name=""), (10142, "mirrored stream name is invalid")),
    (mirror(name="a.b"), (10142, "mirrored stream name is invalid")),
    (
        mirror(filter_subject="a", **transforms(("b", "c"))),
        (10150, "mirror with multiple subject transforms cannot also have a single subject filter"),
    ),
    (
        mirror(**transforms(("a..b", "c"))),
        (10151, "mirror transform source: invalid subject a..b"),
    ),
    (
        mirror(**transforms(("a.*", "b.{{wildcard(2)}}"))),
        (10154, f"mirror transform: {DESTINATION}"),
    ),
    (
        mirror(**transforms(("a.*", "b.*"), ("*.b", "c.*"))),
        (10154, "mirror transform: invalid subject"),
    ),
    (
        mirror(**transforms(("a.*", "b.$1"), ("*.b", "c.$1"))),
        (10152, "mirror subject filters can not overlap"),
    ),
    (
        mirror() | {"max_msg_size": 99},
        (10030, "stream mirror must have max message size >= source"),
    ),
    (mirror(name="S"), (10052, "detected cycle")),
    (mirror(**through("a.b")), (10213, BAD_CONSUMER.format("mirror"))),
    (mirror(**through(deliver="")), (10213, BAD_CONSUMER.format("mirror"))),
    (mirror(**through(deliver="d.*")), (10213, BAD_CONSUMER.format("mirror"))),
    (mirror(**through(opt_start_seq=7)), (10213, BAD_CONSUMER.format("mirror"))),
    (mirror(**through(opt_start_time=TIME)), (10213, BAD_CONSUMER.format("mirror"))),
    (mirror(**through(filter_subject="a")), (10213, BAD_CONSUMER.format("mirror"))),
    # Sources
    (sources({"name": ""}), (10141, "sourced stream name is invalid")),
    (sources({"name": "a b"}), (10141, "sourced stream name is invalid")),
    (sources({}, {}), (10140, "duplicate source configuration detected")),
    (
        sources({}, {"filter_subject": ">", "opt_start_seq": 7}),
        (10140, "duplicate source configuration detected"),
    ),
    (
        sources({"opt_start_seq": 7}, transforms(("", ""))),
        (10140, "duplicate source configuration detected"),
    ),
    (
        sources({"filter_subject": "a", **transforms(("b", "c"))}),
        (10144, "source with multiple subject transforms cannot also have a single subject filter"),
    ),
    (
        sources(transforms(("a..b", "c"))),
        (10145, "source transform source: invalid subject a..b"),
    ),
    (
        sources(transforms(("a.*", "b.{{wildcard(2)}}"))),
        (10146, f"source transform: {DESTINATION}"),
    ),
    (
        sources(transforms(("a.*", "b.$1"), ("a.b", "c"))),
        (10147, "source filters can not overlap"),
    ),
    (
        sources({}) | {"max_msg_size": 99},
        (10046, "stream source must have max message size >= target"),
    ),
    (
        sources({}) | {"allow_msg_schedules": True},
        (10187, "stream source can not also schedule messages"),
    ),
    (sources(through("a.b")), (10215, BAD_CONSUMER.format("source"))),
    (sources(through(deliver="d.>")), (10215, BAD_CONSUMER.format("source"))),
    (sources(through(opt_start_seq=7)), (10215, BAD_CONSUMER.format("source"))),
    (
        sources(through(), through(**transforms(("a", "b")))),
        (10216, "duplicate stream source consumer detected"),
    ),
    (sources({"name": "S"}), (10052, "detected cycle")),
    # Through another account or domain
    (
        sources(external(deliver="d.*")),
        (10024, "stream external delivery prefix d.* must not contain wildcards"),
    ),
    (
        sources({}, {"name": "X", **external(deliver="o")}),
        (10022, "stream external delivery prefix o overlaps with stream subject o.>"),
    ),
    (
        sources(external(api="$JS.*.API")),
        (
            10052,
            'stream external api prefix "$JS.*.API" must be a valid subject without wildcards',
        ),
    ),
    (
        sources(external(api="$JS.API")),
        (10021, "stream external api prefix $JS.API must not overlap with $JS.API"),
    ),
]


@pytest.mark.parametrize(("fields", "error"), REFUSED)
def test_refused(fields: dict[str, Any], error: tuple[int, str]) -> None:
    with pytest.raises(ApiError) as raised:
        checked(**fields)
    assert (raised.value.err_code, raised.value.description) == error


@pytest.mark.parametrize(
    "fields",
    [
        mirror(filter_subject="o.a", opt_start_seq=7),
        mirror(**transforms(("o.a", "b"), ("o.b", ""))),
        mirror(**through()),
        mirror(name="O", **external("$JS.far.API", "far")) | {"max_msg_size": 1},
        mirror(name="unseen"),
        sources({"filter_subject": "o.a"}, {"filter_subject": "o.b"}, {"name": "unseen"}),
        sources(through("C"), through("D")),
        sources({}, external("$JS.far.API")),
        sources({"name": "S", **external("$JS.far.API")}),
        sources(transforms(("a.*", "b.$1"), ("*.b", "c.$1"))),
        sources({"name": "S", "filter_subject": "elsewhere"}) | {"subjects": ["a"]},
    ],
)
def test_allowed(fields: dict[str, Any]) -> None:
    checked(**fields)


def test_a_mirror_answers_direct_gets_as_its_origin_does() -> None:
    assert checked(**mirror()).mirror_direct
    assert not checked(stream("P"), mirror_direct=True, **mirror(name="P")).mirror_direct
    assert checked(mirror_direct=True, **mirror(name="unseen")).mirror_direct
    with pytest.raises(ApiError) as raised:
        checked(pedantic=True, **mirror())
    assert raised.value.error_id is ErrorId.JSPedanticErrF


def test_a_stream_may_not_come_back_to_itself() -> None:
    behind_a_mirror = [stream("A", **mirror(name="B")), stream("B", sources=[{"name": "S"}])]
    with pytest.raises(ApiError, match="detected cycle"):
        checked(*behind_a_mirror, sources=[{"name": "A"}])
    apart = [stream("B", subjects=["b"], sources=[{"name": "S", "filter_subject": "s"}])]
    checked(*apart, sources=[{"name": "B"}])


def test_two_ways_from_one_stream_are_no_cycle() -> None:
    """Each stream on the paths is visited once, however many paths there are."""
    floors = [
        stream(f"{side}{floor}", sources=[{"name": f"{up}{floor + 1}"} for up in "LR"])
        for floor in range(40)
        for side in "LR"
    ]
    checked(*floors, sources=[{"name": "L0"}, {"name": "R0"}, {"name": "R1"}])


def test_filters_are_subjects() -> None:
    for fields, text in (
        (mirror(filter_subject="a..b"), "subject filter 'a..b' for the mirror invalid subject"),
        (
            sources({"filter_subject": "a..b"}),
            "subject filter 'a..b' for the source: invalid subject",
        ),
    ):
        with pytest.raises(ApiError) as raised:
            check_filters(stream("S", **fields), ErrorId.JSStreamCreateErrF)
        assert (raised.value.err_code, raised.value.description) == (10049, text)


def test_a_mirror_can_only_be_promoted() -> None:
    old, plain = stream("S", **mirror()), stream("S", subjects=["S"])
    assert check_change(old, plain) == plain
    for before, after in ((old, stream("S", **mirror(name="P"))), (plain, old)):
        with pytest.raises(ApiError) as raised:
            check_change(before, after)
        assert raised.value.error_id is ErrorId.JSStreamMirrorNotUpdatableErr


def test_sources_are_told_apart_by_what_they_bring() -> None:
    def of(**fields: Any) -> tuple[str, ...]:
        return identity(StreamSource.model_validate({"name": "O", **fields}))

    assert of() == of(opt_start_seq=7) == of(filter_subject=">")
    different = [
        of(),
        of(filter_subject="a"),
        of(**transforms(("a", "b"))),
        of(**external("$JS.far.API")),
        of(**through()),
    ]
    assert len(set(different)) == len(different)


def test_neither_a_subject_nor_a_window_is_filled_in() -> None:
    """A copy has no default subject and no default window: its origin has found the duplicates."""
    for fields in (mirror(), sources({})):
        config = at_once(check_config(stream("S", **fields), ConfigRules(AccountLimits())))
        assert (config.subjects, config.duplicate_window) == ([], 0)
        assert at_once(check_config(config, ConfigRules(AccountLimits()))) == config
