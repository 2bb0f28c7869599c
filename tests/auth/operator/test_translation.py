"""From the claims of an account to its settings (nats-server: updateAccountClaimsWithRefresh)."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.operator.translation import account_options
from natsd.config.account_jetstream import AccountJetStream, StorageLimits
from natsd.config.account_options import AccountLimits, AccountOptions
from natsd.config.auth_options import PermissionsOptions, ResponsesOptions, SubjectRules
from natsd.config.mapping_options import MappingDestination
from natsd.config.public_keys import Kind
from natsd.config.sharing_options import (
    LatencyOptions,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from natsd.config.trace_options import MsgTraceOptions
from natsd.testing.jwts import Operator, key

OPERATOR = Operator()
OTHER = key(Kind.ACCOUNT, "B").public


def options(**body: Any) -> AccountOptions:
    return account_options(decode_as(AccountClaims, OPERATOR.account("A", **body).jwt))


def test_an_unlimited_account() -> None:
    found = options()
    assert found.nkey == key(Kind.ACCOUNT, "A").public
    assert found.limits == AccountLimits()
    assert found.default_permissions is None
    assert found.jetstream == AccountJetStream(enabled=False)


def test_limits() -> None:
    given = {"conn": 5, "subs": 0, "payload": 2**40, "leaf": -7}
    assert options(limits=given).limits == AccountLimits(
        max_connections=5, max_subscriptions=0, max_payload=2**31 - 1, max_leafnodes=-1
    )


def test_exports() -> None:
    latency = {"sampling": "headers", "results": "lat"}
    exports = [
        {"subject": "a.*", "type": "stream", "account_token_position": 2},
        {"subject": "b", "type": "stream", "token_req": True, "revocations": {OTHER: 5}},
        {"subject": "s", "type": "service", "response_type": "Chunked", "allow_trace": True},
        {
            "subject": "t",
            "type": "service",
            "response_threshold": 1_500_000_000,
            "service_latency": latency,
        },
    ]
    assert options(exports=exports).exports == (
        StreamExport(subject="a.*", account_token_position=2),
        StreamExport(subject="b", token_required=True, revocations={OTHER: 5}),
        ServiceExport(subject="s", response_type="chunked", allow_trace=True),
        ServiceExport(
            subject="t",
            response_threshold=timedelta(seconds=1.5),
            latency=LatencyOptions(subject="lat", sampling=0),
        ),
    )


def test_imports() -> None:
    b = {"account": OTHER}
    imports = [
        {"subject": "a.*", "type": "stream", "local_subject": "x.$1", "allow_trace": True, **b},
        {"subject": "a.>", "type": "stream", "to": "old", **b},
        {"subject": "s", "type": "service", "local_subject": "ask", "share": True, **b},
        {"subject": "ask2", "type": "service", "to": "s2", **b},
        {"subject": "t", "type": "service", "token": "eyJ.b.c", **b},
    ]
    assert options(imports=imports).imports == (
        StreamImport(account=OTHER, subject="a.*", to="x.$1", allow_trace=True),
        StreamImport(account=OTHER, subject="a.>", prefix="old"),
        ServiceImport(account=OTHER, subject="s", to="ask", share=True),
        ServiceImport(account=OTHER, subject="s2", to="ask2"),
        ServiceImport(account=OTHER, subject="t", token="eyJ.b.c"),
    )


def test_mappings() -> None:
    destinations = [{"subject": "b", "weight": 40, "cluster": "c"}, {"subject": "d"}]
    assert options(mappings={"a": destinations}).mappings["a"] == (
        MappingDestination(destination="b", weight=40, cluster="c"),
        MappingDestination(destination="d", weight=100),
    )


def test_default_permissions() -> None:
    permissions = {"pub": {"allow": ["a"]}, "sub": {"deny": ["b"]}, "resp": {"max": 0, "ttl": 0}}
    assert options(default_permissions=permissions).default_permissions == PermissionsOptions(
        publish=SubjectRules(allow=("a",)),
        subscribe=SubjectRules(deny=("b",)),
        allow_responses=ResponsesOptions(),
    )


def test_streams() -> None:
    limits = {"disk_storage": -1, "mem_storage": 0, "streams": 5, "consumer": -1}
    found = options(limits=limits, cluster_traffic="owner").jetstream
    assert found == AccountJetStream(
        max_store=-1, max_memory=0, max_streams=5, max_consumers=-1, cluster_traffic="owner"
    )


def test_streams_with_tiers() -> None:
    tiers = {"R1": {"disk_storage": 9, "max_bytes_required": True}, "R3": {"mem_storage": 8}}
    found = options(limits={"tiered_limits": tiers}).jetstream
    assert found is not None
    assert dict(found.tiers) == {
        "R1": StorageLimits(
            max_store=9, max_memory=0, max_streams=0, max_consumers=0, max_bytes_required=True
        ),
        "R3": StorageLimits(max_store=0, max_memory=8, max_streams=0, max_consumers=0),
    }


def test_traces() -> None:
    assert options(trace={"dest": "t", "sampling": 7}).msg_trace == MsgTraceOptions(
        dest="t", sampling=7
    )
    assert options(trace={"dest": "t"}).msg_trace.sampling == 100


def test_what_the_settings_refuse_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    exports = [{"subject": "a b", "type": "stream"}, {"subject": "c", "type": "stream"}]
    found = options(exports=exports, trace={"dest": "t.*"})
    assert found.exports == (StreamExport(subject="c"),)
    assert found.msg_trace == MsgTraceOptions()
    assert len(caplog.messages) == 2
