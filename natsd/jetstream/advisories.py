"""Advisories and metrics: events that JetStream publishes about its assets.

    typed function ──▶ publish_event ──▶ Events.publish (events.py)

Promise
- Members have nats-server's order.
- Events about a stream are published in its account; events about the whole server, in the system
  account.

Source: nats-server's jetstream_events.go and `publishAdvisory`; the schemas
io.nats.jetstream.advisory.v1.*; order and members were compared with a running nats-server 2.14.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.core.network import Session
from natsd.jetstream.events import Fields
from natsd.jetstream.models.stream import StreamState
from natsd.jetstream.models.times import format_time
from natsd.jetstream.names import ADVISORY_PREFIX

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources

ADVISORY_TYPE: Final = "io.nats.jetstream.advisory.v1"
OWN_ADVISORY_TYPE: Final = "io.natsd.jetstream.advisory.v1"
"""Of the events that nats-server does not have."""
AUDIT_SUBJECT: Final = f"{ADVISORY_PREFIX}.API"

Client = Mapping[str, object]
"""The requesting client as `Request.client` describes it; `acc`, its account, is always present."""


def publish_event(
    account: "AccountResources", subject: str, event_type: str, fields: Fields
) -> None:
    """Publish an event in the account, if anybody there listens."""
    account.jetstream.events.publish(account.account, subject, event_type, fields)


# Events of the API and the server


def api_audit(
    jetstream: "ServerResources",
    account: Account,
    subject: str,
    request: bytes,
    response: bytes,
    origin: Session | None,
    headers: bytes,
) -> None:
    """Publish that a request was answered.

    Without a listener nothing is built, because answers can be long.
    """
    if not account.sublist.has_interest(AUDIT_SUBJECT):
        return
    fields: Fields = {
        "server": jetstream.server_name,
        "client": jetstream.client_info(origin, account.name, headers),
        "subject": subject,
        "request": request.decode(errors="replace") or None,
        "response": response.decode(errors="replace"),
    }
    jetstream.events.publish(account, AUDIT_SUBJECT, f"{ADVISORY_TYPE}.api_audit", fields)


def api_limit_reached(jetstream: "ServerResources", dropped: int) -> None:
    """Publish that `dropped` waiting requests were dropped."""
    fields: Fields = {"server": jetstream.server_name, "domain": None, "dropped": dropped}
    subject = f"{AUDIT_SUBJECT}.LIMIT_REACHED"
    _publish_in_system(jetstream, subject, f"{ADVISORY_TYPE}.api_limit_reached", fields)


def server_out_of_storage(jetstream: "ServerResources", stream: str) -> None:
    """Publish that a stream found no room on the disk for a message."""
    fields: Fields = {
        "server": jetstream.server_name,
        "server_id": jetstream.server_id,
        "stream": stream,
        "cluster": "",
    }
    subject = f"{ADVISORY_PREFIX}.SERVER.OUT_OF_STORAGE"
    _publish_in_system(jetstream, subject, f"{ADVISORY_TYPE}.server_out_of_space", fields)


def server_rescued(jetstream: "ServerResources", cluster: str, rescue: Fields) -> None:
    """Publish that this server has carried out `natsd cluster rescue`; only natsd has it."""
    fields: Fields = {
        "server": jetstream.server_name,
        "server_id": jetstream.server_id,
        "cluster": cluster,
        **rescue,
    }
    subject = f"{ADVISORY_PREFIX}.SERVER.RESCUED"
    _publish_in_system(jetstream, subject, f"{OWN_ADVISORY_TYPE}.server_rescued", fields)


def domain_leader_elected(
    jetstream: "ServerResources", cluster: str, replicas: Sequence[Fields]
) -> None:
    """Publish that this server leads the meta group from now on; `replicas` are the others."""
    fields: Fields = {"leader": jetstream.server_name, "replicas": replicas, "cluster": cluster}
    subject = f"{ADVISORY_PREFIX}.DOMAIN.LEADER_ELECTED"
    _publish_in_system(jetstream, subject, f"{ADVISORY_TYPE}.domain_leader_elected", fields)


def _publish_in_system(
    jetstream: "ServerResources", subject: str, event_type: str, fields: Fields
) -> None:
    if jetstream.system_account is not None:
        jetstream.events.publish(jetstream.system_account, subject, event_type, fields)


# Events of streams


def stream_created(account: "AccountResources", stream: str) -> None:
    """Publish that a stream was created; it is on disk."""
    _of_stream(account, "CREATED", stream, "stream_action", {"action": "create"})


def stream_updated(account: "AccountResources", stream: str) -> None:
    """Publish that a stream got a configuration, which may equal the previous one."""
    _of_stream(account, "UPDATED", stream, "stream_action", {"action": "modify"})


def stream_deleted(account: "AccountResources", stream: str) -> None:
    """Publish that a stream was deleted."""
    _of_stream(account, "DELETED", stream, "stream_action", {"action": "delete"})


def stream_leader_elected(
    account: "AccountResources", stream: str, leader: str, replicas: Sequence[Fields]
) -> None:
    """Publish that a server leads the stream from now on; `replicas` are the others."""
    fields: Fields = {"leader": leader, "replicas": replicas}
    _of_stream(account, "LEADER_ELECTED", stream, "stream_leader_elected", fields)


def stream_quorum_lost(
    account: "AccountResources", stream: str, replicas: Sequence[Fields]
) -> None:
    """Publish that the stream's leader reaches no majority of its replicas any more."""
    _of_stream(account, "QUORUM_LOST", stream, "stream_quorum_lost", {"replicas": replicas})


def _of_stream(
    account: "AccountResources", event: str, stream: str, kind: str, fields: Fields
) -> None:
    subject = f"{ADVISORY_PREFIX}.STREAM.{event}.{stream}"
    publish_event(account, subject, f"{ADVISORY_TYPE}.{kind}", {"stream": stream, **fields})


# Events of batches


def batch_abandoned(account: "AccountResources", stream: str, batch_id: str, reason: str) -> None:
    """Publish that a batch was abandoned.

    `reason` is `timeout`, `large`, `incomplete` or `unsupported`. The event is published in the
    system account too, with the name of the account.
    """
    jetstream = account.jetstream
    subject = f"{ADVISORY_PREFIX}.STREAM.BATCH_ABANDONED.{stream}"
    event_type = f"{ADVISORY_TYPE}.stream_batch_abandoned"
    fields: Fields = {"stream": stream, "domain": None, "batch": batch_id, "reason": reason}
    publish_event(account, subject, event_type, fields)
    _publish_in_system(jetstream, subject, event_type, {"account": account.name, **fields})


# Events of snapshots and restores


def snapshot_create(
    account: "AccountResources", stream: str, state: StreamState, client: Client
) -> None:
    """Publish that a snapshot of this state begins."""
    _of_snapshot(account, "SNAPSHOT_CREATE", stream, {"state": state.model_dump()}, client)


def snapshot_complete(
    account: "AccountResources", stream: str, start_ns: int, end_ns: int, client: Client
) -> None:
    """Publish that a snapshot was sent completely; times are wall-clock nanoseconds."""
    times = {"start": format_time(start_ns), "end": format_time(end_ns)}
    _of_snapshot(account, "SNAPSHOT_COMPLETE", stream, times, client)


def restore_create(account: "AccountResources", stream: str, client: Client) -> None:
    """Publish that a restore of a stream begins."""
    _of_snapshot(account, "RESTORE_CREATE", stream, {}, client)


def restore_complete(
    account: "AccountResources",
    stream: str,
    start_ns: int,
    end_ns: int,
    size_bytes: int,
    client: Client,
) -> None:
    """Publish that a stream was restored from `size_bytes` bytes of snapshot."""
    fields = {"start": format_time(start_ns), "end": format_time(end_ns), "bytes": size_bytes}
    _of_snapshot(account, "RESTORE_COMPLETE", stream, fields, client)


def _of_snapshot(
    account: "AccountResources", event: str, stream: str, fields: Fields, client: Client
) -> None:
    _of_stream(account, event, stream, event.lower(), {**fields, "client": client})


# Events of consumers


def consumer_created(account: "AccountResources", stream: str, consumer: str) -> None:
    """Publish that a consumer was created."""
    of_consumer(account, "CREATED", stream, consumer, "consumer_action", {"action": "create"})


def consumer_deleted(account: "AccountResources", stream: str, consumer: str) -> None:
    """Publish that a consumer is gone: deleted, inactive too long, or its stream was deleted."""
    of_consumer(account, "DELETED", stream, consumer, "consumer_action", {"action": "delete"})


def group_pinned(
    account: "AccountResources", stream: str, consumer: str, group: str, pinned_id: str
) -> None:
    """Publish that a priority group is pinned to a client."""
    _of_group(account, "PINNED", stream, consumer, {"group": group, "pinned_id": pinned_id})


def group_unpinned(
    account: "AccountResources", stream: str, consumer: str, group: str, reason: str
) -> None:
    """Publish that a priority group is pinned no longer; `reason` is `admin` or `timeout`."""
    _of_group(account, "UNPINNED", stream, consumer, {"group": group, "reason": reason})


def _of_group(
    account: "AccountResources", event: str, stream: str, consumer: str, fields: Fields
) -> None:
    named = {"account": account.name, "stream": stream, "consumer": consumer, "domain": None}
    publish_event(
        account,
        f"{ADVISORY_PREFIX}.CONSUMER.{event}.{stream}.{consumer}",
        f"{ADVISORY_TYPE}.consumer_group_{event.lower()}",
        {**named, **fields},
    )


def consumer_paused(
    account: "AccountResources", stream: str, consumer: str, until_ns: int, *, is_paused: bool
) -> None:
    """Publish that a consumer is paused until `until_ns` (wall clock), or was resumed."""
    fields = {"paused": is_paused, "pause_until": format_time(until_ns)}
    of_consumer(account, "PAUSE", stream, consumer, "consumer_pause", fields)


def of_consumer(
    account: "AccountResources",
    event: str,
    stream: str,
    consumer: str,
    kind: str,
    fields: Fields,
) -> None:
    """Publish an event about a consumer; `kind` is the last word of the event's type."""
    publish_event(
        account,
        f"{ADVISORY_PREFIX}.CONSUMER.{event}.{stream}.{consumer}",
        f"{ADVISORY_TYPE}.{kind}",
        {"stream": stream, "consumer": consumer, **fields},
    )
