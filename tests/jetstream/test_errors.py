"""The 222 error codes of the JetStream API: each is produced here, or the reason is given.

A case is a list of requests, and the answer to the last one is the error. `> subject` publishes a
message; every other subject is an API subject without its `$JS.API.`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamLimits
from natsd.jetstream.errors import ERRORS_BY_CODE, ApiError, ErrorId, api_error
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.tiers import FLAT
from tests.jetstream.api.schemas import ERRORS, check
from tests.jetstream.consumer import test_config as consumer_rules
from tests.jetstream.serving import ACCOUNT, account_of, ask, build
from tests.jetstream.stream import test_config as stream_rules
from tests.jetstream.stream import test_source_config as source_rules

Step = tuple[Any, ...]


def consumer(config: dict[str, Any], stream: str = "S", name: str = "C", **rest: Any) -> Step:
    body = {"stream_name": stream, "config": {"durable_name": name, **config}, **rest}
    return f"CONSUMER.CREATE.{stream}.{name}", body


def stream(name: str = "S", verb: str = "CREATE", **config: Any) -> Step:
    return f"STREAM.{verb}.{name}", {"name": name, "storage": "memory", **config}


def publish(subject: str = "S", payload: bytes = b"x", **headers: str) -> Step:
    lines = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items())
    return f"> {subject}", payload, f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""


def schedule(**headers: str) -> Step:
    return publish(
        "plan", Nats_Schedule=headers.pop("Nats_Schedule", "@hourly"), **TARGET | headers
    )


TARGET = {"Nats_Schedule_Target": "S"}
SCHEDULES = stream(subjects=["S", "plan"], allow_msg_schedules=True)
ACKED = {"ack_policy": "explicit"}
WORK = stream("W", retention="workqueue", subjects=["w.>"])

CASES: list[tuple[ErrorId, list[Step]]] = [
    # Requests
    (ErrorId.JSBadRequestErr, [stream(), ("STREAM.MSG.GET.S", b"")]),
    (ErrorId.JSInvalidJSONErr, [("STREAM.CREATE.S", b"{")]),
    (ErrorId.JSNotEmptyRequestErr, [("STREAM.DELETE.S", b"x")]),
    (
        ErrorId.JSRequiredApiLevelErr,
        [("INFO", b"", b"NATS/1.0\r\nNats-Required-Api-Level: 5\r\n\r\n")],
    ),
    (ErrorId.JSClusterRequiredErr, [("STREAM.LEADER.STEPDOWN.S", b"")]),
    (ErrorId.JSStreamMismatchErr, [("STREAM.CREATE.S", {"name": "T"})]),
    (ErrorId.JSStreamNameContainsPathSeparatorsErr, [stream("a/b")]),
    (ErrorId.JSStreamNotFoundErr, [("STREAM.INFO.S", b"")]),
    (ErrorId.JSConsumerNotFoundErr, [stream(), ("CONSUMER.INFO.S.C", b"")]),
    (ErrorId.JSNoMessageFoundErr, [stream(), ("STREAM.MSG.GET.S", {"seq": 9})]),
    (
        ErrorId.JSSequenceNotFoundErrF,
        [stream(), publish(), *2 * [("STREAM.MSG.DELETE.S", {"seq": 1})]],
    ),
    (
        ErrorId.JSStreamMsgDeleteFailedF,
        [stream(deny_delete=True), publish(), ("STREAM.MSG.DELETE.S", {"seq": 1})],
    ),
    (ErrorId.JSStreamPurgeFailedF, [stream(deny_purge=True), ("STREAM.PURGE.S", b"")]),
    (ErrorId.JSSnapshotDeliverSubjectInvalidErr, [stream(), ("STREAM.SNAPSHOT.S", {"jsck": True})]),
    (
        ErrorId.JSStreamSnapshotErrF,
        [stream(), ("STREAM.SNAPSHOT.S", {"deliver_subject": "d"})],
    ),
    (ErrorId.JSStreamNameExistRestoreFailedErr, [stream(), ("STREAM.RESTORE.S", {"config": {}})]),
    (
        ErrorId.JSStreamRestoreErrF,
        [("STREAM.RESTORE.S", {"config": {"name": "S", "storage": "memory"}})],
    ),
    (
        ErrorId.JSConsumerInvalidPriorityGroupErr,
        [stream(), consumer(ACKED), ("CONSUMER.UNPIN.S.C", {"group": "g"})],
    ),
    (
        ErrorId.JSConsumerInvalidResetErr,
        [stream(), consumer(ACKED | {"deliver_policy": "new"}), ("CONSUMER.RESET.S.C", {"seq": 1})],
    ),
    # Streams
    (ErrorId.JSStreamInvalidConfigF, [stream(subjects=["a..b"])]),
    (ErrorId.JSStreamNameExistErr, [stream(), stream(max_msgs=7)]),
    (ErrorId.JSStreamSubjectOverlapErr, [stream(subjects=["a.>"]), stream("T", subjects=["a.b"])]),
    (ErrorId.JSStreamReplicasNotSupportedErr, [stream(num_replicas=3)]),
    (ErrorId.JSMaximumStreamsLimitErr, [*map(stream, "ABCDE")]),
    (ErrorId.JSStreamMaxStreamBytesExceeded, [stream(max_bytes=2 << 20)]),
    (ErrorId.JSMemoryResourcesExceededErr, [*(stream(name, max_bytes=1 << 20) for name in "ABC")]),
    (ErrorId.JSStorageResourcesExceededErr, [stream(storage="file", max_bytes=4 << 20)]),
    (ErrorId.JSPedanticErrF, [stream(max_msgs=-5, pedantic=True)]),
    (
        ErrorId.JSStreamUpdateErrF,
        [
            stream(),
            consumer(ACKED | {"max_ack_pending": 9}),
            stream(verb="UPDATE", consumer_limits={"max_ack_pending": 5}),
        ],
    ),
    (
        ErrorId.JSStreamSealedErr,
        [stream(), stream(verb="UPDATE", sealed=True), ("STREAM.PURGE.S", b"")],
    ),
    # Consumers
    (
        ErrorId.JSConsumerEphemeralWithDurableNameErr,
        [stream(), ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"durable_name": "C"}})],
    ),
    (
        ErrorId.JSConsumerDurableNameNotSetErr,
        [stream(), ("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S"})],
    ),
    (ErrorId.JSConsumerDurableNameNotMatchSubjectErr, [stream(), consumer({"durable_name": "D"})]),
    (
        ErrorId.JSConsumerNameContainsPathSeparatorsErr,
        [stream(), consumer({"durable_name": "a/b"}, name="a/b")],
    ),
    (
        ErrorId.JSConsumerMultipleFiltersNotAllowed,
        [
            stream(),
            (
                "CONSUMER.CREATE.S.C.a",
                {"stream_name": "S", "config": {"filter_subjects": ["a", "b"]}},
            ),
        ],
    ),
    (
        ErrorId.JSConsumerCreateFilterSubjectMismatchErr,
        [
            stream(),
            ("CONSUMER.CREATE.S.C.a.b", {"stream_name": "S", "config": {"filter_subject": "a"}}),
        ],
    ),
    (
        ErrorId.JSMaximumConsumersLimitErr,
        [stream(max_consumers=1), consumer({}), consumer({}, name="D")],
    ),
    (ErrorId.JSConsumerAlreadyExists, [stream(), consumer({}), consumer(ACKED, action="create")]),
    (ErrorId.JSConsumerDoesNotExist, [stream(), consumer(ACKED, action="update")]),
    (
        ErrorId.JSConsumerPullRequiresAckErr,
        [WORK, consumer({}, "W")],
    ),
    (
        ErrorId.JSConsumerWQConsumerNotDeliverAllErr,
        [WORK, consumer(ACKED | {"deliver_policy": "new"}, "W")],
    ),
    (
        ErrorId.JSConsumerMaxPendingAckExcessErrF,
        [
            stream(consumer_limits={"max_ack_pending": 5}),
            consumer(ACKED | {"max_ack_pending": 6}),
        ],
    ),
    (
        ErrorId.JSConsumerAckFCRequiresFCErr,  # not pedantic: it is filled in
        [
            stream(),
            consumer({"ack_policy": "flow_control", "deliver_subject": "d"}, pedantic=True),
        ],
    ),
    (ErrorId.JSConsumerMaxRequestBatchExceededF, [stream(), consumer(ACKED | {"max_batch": 6})]),
    (ErrorId.JSConsumerCreateErrF, [stream(), consumer({}), consumer(ACKED)]),
    (ErrorId.JSConsumerNameTooLongErrF, [stream(), consumer({}, name="n" * 256)]),
    (
        ErrorId.JSConsumerNameExistErr,
        [
            stream(),
            ("listen", "d"),
            consumer({"deliver_subject": "d"}),
            consumer({"deliver_subject": "e"}),
        ],
    ),
    (ErrorId.JSConsumerWQRequiresExplicitAckErr, [WORK, consumer({"deliver_subject": "d"}, "W")]),
    (
        ErrorId.JSConsumerWQMultipleUnfilteredErr,
        [WORK, consumer(ACKED, "W"), consumer(ACKED, "W", "D")],
    ),
    (
        ErrorId.JSConsumerWQConsumerNotUniqueErr,
        [
            WORK,
            consumer(ACKED | {"filter_subject": "w.*"}, "W"),
            consumer(ACKED | {"filter_subject": "w.a"}, "W", "D"),
        ],
    ),
    # Publishing
    (ErrorId.JSAccountResourcesExceededErr, [stream(), publish(payload=b"x" * (3 << 20))]),
    (ErrorId.JSStreamMessageExceedsMaximumErr, [stream(max_msg_size=1), publish(payload=b"xx")]),
    (ErrorId.JSStreamHeaderExceedsMaximumErr, [stream(), publish(a="x" * 70_000)]),
    (
        ErrorId.JSStreamStoreFailedF,
        [stream(max_msgs=1, discard="new"), publish(), publish()],
    ),
    (ErrorId.JSStreamNotMatchErr, [stream(), publish(Nats_Expected_Stream="T")]),
    (ErrorId.JSStreamWrongLastMsgIDErrF, [stream(), publish(Nats_Expected_Last_Msg_Id="x")]),
    (ErrorId.JSStreamWrongLastSequenceErrF, [stream(), publish(Nats_Expected_Last_Sequence="7")]),
    (
        ErrorId.JSStreamExpectedLastSeqPerSubjectInvalid,
        [stream(), publish(Nats_Expected_Last_Subject_Sequence_Subject="S")],
    ),
    (ErrorId.JSStreamRollupFailedF, [stream(), publish(Nats_Rollup="sub")]),
    (ErrorId.JSMessageTTLDisabledErr, [stream(), publish(Nats_TTL="1s")]),
    (ErrorId.JSMessageTTLInvalidErr, [stream(), publish(Nats_TTL="soon")]),
    (ErrorId.JSMessageIncrDisabledErr, [stream(), publish(Nats_Incr="+1")]),
    (ErrorId.JSMessageIncrInvalidErr, [stream(), publish(Nats_Incr="one")]),
    (ErrorId.JSMessageIncrMissingErr, [stream(allow_msg_counter=True), publish(payload=b"")]),
    (ErrorId.JSMessageIncrPayloadErr, [stream(allow_msg_counter=True), publish(Nats_Incr="1")]),
    (ErrorId.JSMessageSchedulesDisabledErr, [stream(), publish(Nats_Schedule="@every 1s")]),
    (
        ErrorId.JSMessageSchedulesSchedulerInvalidErr,
        [stream(), publish(Nats_Scheduler="a b")],
    ),
    (
        ErrorId.JSMessageSchedulesPatternInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule="@every 1ms")],
    ),
    (
        ErrorId.JSMessageSchedulesTimeZoneInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule_Time_Zone="Europe/Atlantis")],
    ),
    (
        ErrorId.JSMessageSchedulesTargetInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule_Target="plan")],
    ),
    (
        ErrorId.JSMessageSchedulesSourceInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule_Source="S")],
    ),
    (
        ErrorId.JSMessageSchedulesTTLInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule_TTL="soon")],
    ),
    (
        ErrorId.JSMessageSchedulesRollupInvalidErr,
        [SCHEDULES, schedule(Nats_Schedule_Rollup="all")],
    ),
]

PROVEN_ELSEWHERE = {
    ErrorId.JSStreamMirrorNotUpdatableErr: "stream/test_source_config.py: a mirror is promoted",
    ErrorId.JSMirrorConsumerSetupFailedErrF: "sourcing/test_link.py: an answer of no use",
    ErrorId.JSSourceConsumerSetupFailedErrF: "sourcing/test_link.py: an answer of no use",
    ErrorId.JSMirrorConsumerRequiresAckFCErr: "sourcing/test_link.py: not such a consumer",
    ErrorId.JSSourceConsumerRequiresAckFCErr: "sourcing/test_link.py: not such a consumer",
    ErrorId.JSNotEnabledForAccountErr: "api/test_router.py: the system account",
    ErrorId.JSStreamGeneralErrorF: "api/test_router.py: a handler that fails",
    ErrorId.JSInsufficientResourcesErr: "stream/test_publish.py: the server has no room",
    ErrorId.JSStreamTooManyRequests: "stream/test_backlog.py: the disk does not keep up",
    ErrorId.JSNoLimitsErr: "test_resources.py: an account with limits of other tiers",
    **dict.fromkeys(
        (each for each in ErrorId if each.name.startswith("JSAtomicPublish")),
        "behaviour/test_atomic_batches.py: a batch is several messages",
    ),
    **dict.fromkeys(
        (each for each in ErrorId if each.name.startswith("JSBatchPublish")),
        "behaviour/test_fast_batches.py: it is said in the reply subject",
    ),
    ErrorId.JSStreamWrongLastSequenceConstantErr: "behaviour/test_atomic_batches.py: in a batch",
    ErrorId.JSStreamMaxBytesRequired: "stream/test_config.py: an account's limits",
    ErrorId.JSConsumerInactiveThresholdExcess: "consumer/test_config.py: a stream's limits",
    ErrorId.JSConsumerOfflineReasonErrF: "test_recovery.py: a later version's consumer",
    ErrorId.JSStreamOfflineReasonErrF: "test_recovery.py: a damaged stream",
    ErrorId.JSStreamCreateErrF: "it takes a disk that fails",
    ErrorId.JSStreamDeleteErrF: "it takes a disk that fails",
    ErrorId.JSTempStorageFailedErr: "snapshot/test_restoring.py: a disk that fails",
    ErrorId.JSConsumerStoreFailedErrF: "it takes a disk that fails",
    ErrorId.JSMessageCounterBrokenErr: "stream/test_counters.py: the last message is no total",
    ErrorId.JSStreamExpectedLastSeqPerSubjectNotReady: "it takes a block that is not in memory",
    ErrorId.JSClusterNotAvailErr: "it takes a block that is not in memory",
}

NOT_RAISED: dict[str, str] = {
    "replicas: a later issue": """
        JSCluster* JSRaftGeneralErrF JSPeerRemapErr JSStreamAssignmentErrF JSStreamOfflineErr
        JSStreamMoveAndScaleErr JSStreamMoveInProgressErr JSConsumerReplicasShouldMatchStream
        JSConsumerOfflineErr JSStreamSequenceNotMatchErr JSStreamDuplicateMessageConflict""",
    "stream templates are gone": "JSStreamTemplate* JSTemplateNameNotMatchSubjectErr",
    "streams of an account are moved in clusters only": "JSNoAccountErr",
    "what it would hold are errors of their own": "JSStreamLimitsErrF",
    "there is no such server to ask": "JSNotEnabledErr",
    "refused as invalid JSON before": """
        JSConsumerAckPolicyInvalidErr JSConsumerReplayPolicyInvalidErr
        JSConsumerConfigRequiredErr""",
    "the subject does not let such a request in": """
        JSConsumerDurableNameNotInSubjectErr JSRestoreSubscribeFailedErrF""",
    "another error comes first, as on nats-server": """
        JSConsumerMaxWaitingNegativeErr JSConsumerMaxRequestBatchNegativeErr JSStreamInvalidErr
        JSConsumerExistingActiveErr JSConsumerBadDurableNameErr
        JSConsumerReplacementWithDifferentNameErr""",
    "nats-server 2.14 does not raise it either": """
        JSConsumerEphemeralWithDurableInSubjectErr JSConsumerOnMappedErr JSConsumerPullNotDurableErr
        JSMirrorWithStartSeqAndTimeErr JSMirrorWithSubjectFiltersErr
        JSStreamInfoMaxSubjectsErr JSStreamMinLastSeqErr JSStreamReplicasNotUpdatableErr
        JSStreamReconfigureNotInProgressErr JSConsumerFilterNotSubsetErr""",
}


def not_raised() -> set[ErrorId]:
    """Return the errors of NOT_RAISED that have no case; a `*` stands for the rest of a name."""
    found = set[ErrorId]()
    for name in " ".join(NOT_RAISED.values()).split():
        matching = {each for each in ErrorId if fnmatch(each.name, name)}
        assert matching, f"{name} is no error"
        found |= matching if "*" in name else set(matching)
    return found - raised()


def raised() -> set[ErrorId]:
    """Return the errors that a test produces."""
    tables = (consumer_rules.REFUSED, stream_rules.REFUSED, source_rules.REFUSED)
    rules = [code for table in tables for _, (code, _) in table]
    cases = [error_id for error_id, _ in CASES]
    return {*cases, *PROVEN_ELSEWHERE, *(ERRORS_BY_CODE[code] for code in rules)}


def test_each_is_produced_or_it_is_said_why_not() -> None:
    assert set(ErrorId) - raised() - not_raised() == set()
    named = {name for name in " ".join(NOT_RAISED.values()).split() if "*" not in name}
    assert not named & {error_id.name for error_id in raised()}


@asynccontextmanager
async def bounded(directory: Path) -> AsyncIterator[JetStream]:
    """Yield a JetStream whose server and account have limits of every kind."""
    limits = AccountLimits(max_streams=4, max_memory=2 << 20, memory_max_stream_bytes=1 << 20)
    jetstream = build(
        directory, max_file_store=3 << 20, limits=JetStreamLimits(max_request_batch=5)
    )
    account = Account(ACCOUNT, jetstream.reactor)
    await jetstream.start([])
    await jetstream.configure_account(account, {FLAT: limits})
    yield jetstream
    await jetstream.stop()
    account.close()
    jetstream.reactor.close()


@pytest.mark.parametrize(("error_id", "steps"), CASES, ids=[case[0].name for case in CASES])
async def test_produced(error_id: ErrorId, steps: list[Step], tmp_path: Path) -> None:
    async with bounded(tmp_path) as jetstream:
        client = account_of(jetstream).account.internal_client
        answer: dict[str, Any] = {}
        for subject, body, *headers in steps:
            if subject == "listen":
                client.subscribe(body, lambda *_message: None)
                continue
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            is_publish = subject.startswith("> ")
            target = subject[2:] if is_publish else f"$JS.API.{subject}"
            found = await ask(jetstream, target, data, headers[0] if headers else b"")
            answer = json.loads(found[0][1])
            if not is_publish:
                check(answer)
        assert answer.get("error", {}).get("err_code") == error_id.err_code, answer
        assert answer["error"]["code"] == error_id.code
        text = re.escape(error_id.description)
        assert re.fullmatch(re.sub(r"\\{\w+\\}", ".*", text), answer["error"]["description"])


@pytest.mark.skipif(not ERRORS.exists(), reason="the published errors are not here")
def test_codes_and_texts_are_the_published_ones() -> None:
    published = {
        row["constant"]: (row["error_code"], row["code"], row["description"])
        for row in json.loads(ERRORS.read_text())
        if row["error_code"] <= 10223  # higher codes belong to nats-server 2.15
    }
    assert {error_id.name: error_id.value for error_id in ErrorId} == published
    assert len(published) == 222


def test_placeholders_are_filled() -> None:
    error = api_error(ErrorId.JSStreamTransformInvalidSource, err="{curly} things")
    assert isinstance(error, ApiError)
    assert error.description == "stream transform source: {curly} things"
    assert str(error) == "stream transform source: {curly} things (10155)"
