"""API requests: any body on any subject is read, or refused with an error of the table.

An accepted body is unchanged when it is written and read again, and so is the configuration that
the rules make of it.

Input: the subject after `$JS.API.`, a newline, the body. nats-server's counterpart is
`unmarshalRequest`.
"""

import contextlib

from natsd.core.routing import is_valid_literal, matches
from natsd.core.steps import at_once
from natsd.jetstream.api.body import read_body
from natsd.jetstream.api.table import ROUTES
from natsd.jetstream.consumer.config import check_config as check_consumer
from natsd.jetstream.consumer.defaults import Ceilings, with_defaults
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import decode, encode
from natsd.jetstream.models.requests import CreateConsumerRequest, StreamConfigRequest
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.config import ConfigRules, check_config

MODULES = ["natsd.core.routing", "natsd.core.routing", "natsd.core.routing"]
SEEDS = [
    b"INFO\n",
    b'STREAM.CREATE.S\n{"name":"S","subjects":["a.>","b"],"max_age":1000000000}',
    b'STREAM.CREATE.S\n{"name":"S","republish":{"src":">","dest":"x.{{wildcard(1)}}"}}',
    b'STREAM.UPDATE.S\n{"name":"S","retention":"workqueue","metadata":{"a":"\\ud800"}}',
    b'STREAM.CREATE.S\n{"name":"S","max_msgs":1e3,"first_seq":99999999999999999999}',
    b'STREAM.MSG.GET.S\n{"seq":1,"start_time":"2020-02-30T00:00:00Z"}',
    b"STREAM.DELETE.S\n{}",
    b'STREAM.PURGE.S\n{"filter":"a.*","keep":1}',
    b'CONSUMER.CREATE.S.C.a.>\n{"stream_name":"S","config":{"durable_name":"C","backoff":[1,2]}}',
    b'CONSUMER.CREATE.S\n{"stream_name":"S","config":{"deliver_policy":"undefined"},"action":""}',
    b'CONSUMER.PAUSE.S.C\n{"pause_until":"9999-12-31T23:59:59.999999999+24:59"}',
    b"STREAM.NAMES\n[[[[[[",
    b'STREAM.LIST\n{"offset":-1,"SUBJECT":null}',
]

RULES = ConfigRules(AccountLimits())
STREAM = StreamConfig(name="S", subjects=["a.>"], num_replicas=1)


def check(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    subject = head.decode("utf-8", "surrogateescape")
    if not is_valid_literal(subject):
        return
    for route in ROUTES:
        if matches(subject, route.subject):
            assert len(route.arguments(subject)) == sum(map(route.subject.count, "*>"))
            for strict in (True, False):
                with contextlib.suppress(ApiError):
                    check_body(read_body(route, body, strict=strict))


def check_body(model: Model) -> None:
    assert decode(type(model), encode(model)) == model
    if isinstance(model, StreamConfigRequest):
        check_rules(model)
    if isinstance(model, CreateConsumerRequest):
        config = with_defaults(model.config, STREAM, Ceilings(), pedantic=model.pedantic)
        at_once(check_consumer(config, STREAM, Ceilings()))


def check_rules(request: StreamConfigRequest) -> None:
    config = at_once(check_config(request.config, RULES, pedantic=request.pedantic))
    try:
        assert at_once(check_config(config, RULES)) == config
    except ApiError as error:
        raise AssertionError(f"what was made of {request} is refused: {error}") from None
