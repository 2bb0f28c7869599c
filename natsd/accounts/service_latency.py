"""The latency of exported services: which requests are measured, and the metrics of them.

    request ─▶ begin ─▶ LatencyMeasure ─▶ answered: status 200, with the times
                                       └▶ failed:   408, 503 or 504
    a measured request without a reply subject: status 400

- `sampling` is the per cent of requests that are measured; with 0, and for those that were not
  drawn, the trace headers decide: Uber-Trace-Id, X-B3-Sampled, X-B3-TraceId, B3, traceparent.
- The times are estimated from the round-trip times of requestor and responder.
- A metric is published in the exporting account.
- If the responder is connected to another server of the cluster, that server measures its part
  (remote_latency.py).

Source: nats-server's `shouldSample` and `sendTrackingLatency` (server/accounts.go).
"""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from natsd.config.sharing_options import LatencyOptions
from natsd.core.network import ClientSession, RouteSession, Session, trace_headers
from natsd.core.wall_time import timestamp

if TYPE_CHECKING:
    from natsd.accounts.account import Account
    from natsd.accounts.remote_latency import RemoteMeasures, RemotePart

Describe = Callable[[Session | None, str, str, bool, bool], Mapping[str, object]]
"""Called with a client (None: the server), its account, the account that passed its request on
(empty: none), whether details are shared, and whether the server is named. Returns the members of
the client info."""

TYPE: Final = "io.nats.server.metric.v1.service_latency"
DESCRIPTIONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    503: "Service Unavailable",
    504: "Service Timeout",
}
PER_CENT: Final = 100
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LETTERS: Final = 22
_UBER: Final = re.compile(r"[^:]*:[^:]*:[^:]*:([0-9a-fA-F]{1,2})")
_PARENT: Final = re.compile(r"[^-]*-[^-]*-[^-]*-([0-9a-fA-F]{2})")
_B3: Final = ("X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")

Headers = dict[str, list[str]]


class ServiceLatency:
    """The measurements of one exported service."""

    def __init__(
        self,
        account: "Account",
        options: LatencyOptions,
        describe: Describe,
        remote: "RemoteMeasures | None" = None,
    ) -> None:
        """Measure the service; `remote` knows what other servers measure, None: there are none."""
        self.options = options
        self.remote = remote
        self._account = account
        self._describe = describe

    def begin(
        self,
        requestor: Session | None,
        account: str,
        is_shared: bool,
        block: bytes,
        has_reply: bool,
    ) -> "LatencyMeasure | None":
        """Return the measure of a request that is sampled, else None.

        One without a reply subject cannot be measured; it is reported at once.
        """
        headers: Headers = {}
        sampling = self.options.sampling
        if not 0 < secrets.randbelow(PER_CENT) + 1 <= sampling:
            headers = triggering_headers(block) if block else {}
            if not headers:
                return None
        measure = LatencyMeasure(self, requestor, account, is_shared, headers)
        if has_reply:
            return measure
        measure.failed(400)
        return None

    def requestor(self, session: Session | None, account: str, is_shared: bool) -> object:
        """Return what a metric shows of a requestor."""
        return self._describe(session, account, "", is_shared, is_shared)

    def responder(self, session: Session) -> object:
        """Return what a metric shows of a responder."""
        return self._describe(session, self._account.name, "", True, True)

    def publish(self, fields: dict[str, object]) -> None:
        """Publish a metric in the exporting account."""
        metric = {
            "type": TYPE,
            "id": "".join(secrets.choice(_LETTERS) for _ in range(_ID_LETTERS)),
            "timestamp": timestamp(time.time_ns()),
            **fields,
        }
        self._account.internal_client.publish(self.options.subject, msgspec.json.encode(metric))


class LatencyMeasure:
    """The measure of one request; either `answered` or `failed` is called, once."""

    reply_suffix: bytes
    """End of the reply subject, from which other servers know that the request is measured."""

    __slots__ = (
        "_account",
        "_headers",
        "_is_shared",
        "_requestor",
        "_service",
        "_start_ns",
        "reply_suffix",
    )

    def __init__(
        self,
        service: ServiceLatency,
        requestor: Session | None,
        account: str,
        is_shared: bool,
        headers: Headers,
    ) -> None:
        self._service = service
        self._requestor = requestor
        self._account = account
        self._is_shared = is_shared
        self._headers = headers
        self._start_ns = time.time_ns()
        self.reply_suffix = b"" if service.remote is None else service.remote.reply_suffix

    def answered(self, responder: Session | None, reply: bytes) -> None:
        """Publish the metric of a request that is answered now, on the subject `reply`."""
        taken_ns = max(time.time_ns() - self._start_ns, 0)
        remote = self._service.remote
        if remote is not None and isinstance(responder, RouteSession):
            remote.complete(reply.decode(), partial(self._answered_elsewhere, taken_ns))
            return
        began_ns = time.monotonic_ns()
        sides = self._requestor_info()
        if responder is not None:
            sides["responder"] = self._service.responder(responder)
        responder_rtt_ns = rtt_ns(responder)
        total_ns = taken_ns + rtt_ns(self._requestor)
        system_ns = 0
        if responder_rtt_ns:
            system_ns = time.monotonic_ns() - began_ns
            total_ns += system_ns
        self._publish(200, sides, max(taken_ns - responder_rtt_ns, 0), system_ns, total_ns)

    def _answered_elsewhere(self, taken_ns: int, part: "RemotePart | None") -> None:
        """Publish the metric of a request that a client of another server has answered."""
        sides = self._requestor_info()
        service_ns, system_ns = taken_ns, 0
        if part is not None:
            if part.responder is not None:
                sides["responder"] = part.responder
            service_ns = max(part.service, 0)
            system_ns = max(taken_ns - part.service - part.rtt_ns, 0)
        self._publish(200, sides, service_ns, system_ns, taken_ns + rtt_ns(self._requestor))

    def failed(self, status: int) -> None:
        """Publish the metric of a request that is not answered."""
        self._publish(status, self._requestor_info(), 0, 0, 0)

    def _requestor_info(self) -> dict[str, object]:
        return {
            "requestor": self._service.requestor(self._requestor, self._account, self._is_shared)
        }

    def _publish(
        self, status: int, sides: dict[str, object], service_ns: int, system_ns: int, total_ns: int
    ) -> None:
        fields: dict[str, object] = {"status": status}
        if status in DESCRIPTIONS:
            fields["description"] = DESCRIPTIONS[status]
        fields |= sides
        if self._headers:
            fields["header"] = self._headers
        fields["start"] = timestamp(self._start_ns - rtt_ns(self._requestor))
        fields |= {"service": service_ns, "system": system_ns, "total": total_ns}
        self._service.publish(fields)


def rtt_ns(session: Session | None) -> int:
    """Return the round-trip time of a client; 0: unknown."""
    return session.rtt_ns if isinstance(session, ClientSession) else 0


def triggering_headers(block: bytes) -> Headers:
    """Return the trace headers that request a measurement; empty: they do not."""
    headers: Headers = {}
    for name, value in trace_headers(block):
        key = "-".join(part.capitalize() for part in name.decode("utf-8", "replace").split("-"))
        headers.setdefault(key, []).append(value.decode("utf-8", "replace"))
    if "Uber-Trace-Id" in headers:
        flags = _UBER.fullmatch(headers["Uber-Trace-Id"][0])
        if flags is None or not int(flags[1], 16) & 1:
            return {}
        return _chosen(headers, "Uber-Trace-Id", prefix="Uberctx-")
    sampled = headers.get("X-B3-Sampled", [""])[0]
    if sampled == "1":
        return _chosen(headers, *_B3)
    if sampled == "0":
        return {}
    if "X-B3-Traceid" in headers:
        return _chosen(headers, *_B3)
    if "B3" in headers:
        parts = headers["B3"][0].split("-")
        is_denied = parts[2:3] == ["0"] or parts == ["0"]
        return {} if is_denied else _chosen(headers, "B3")
    flags = _PARENT.fullmatch(headers.get("Traceparent", [""])[0])
    if flags is None or not int(flags[1], 16) & 1:
        return {}
    return _chosen(headers, "Traceparent", "Tracestate")


def _chosen(headers: Headers, *names: str, prefix: str | None = None) -> Headers:
    """Return the headers of these names, or with the prefix."""
    return {
        name: values
        for name, values in headers.items()
        if name in names or (prefix is not None and name.startswith(prefix))
    }
