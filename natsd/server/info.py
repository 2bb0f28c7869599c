"""The INFO line, with fields of the server and fields for one client.

Source: nats-server's `Info` (server/server.go) and `generateClientInfoJSON` (server/client.go): the
fields are in that order, and a space precedes the CRLF.
"""

import json
from typing import NamedTuple

from natsd.config import Options
from natsd.version import API_LEVEL, NATS_VERSION, PROTOCOL_VERSION, RUNTIME_VERSION, VERSION


class Topology(NamedTuple):
    """What clients are told of the cluster of their server."""

    cluster: str = ""
    """Name of the cluster; empty: there is none."""
    connect_urls: tuple[str, ...] = ()
    """Addresses of its servers for clients."""
    other_urls: tuple[str, ...] = ()
    """The same without those of this server, which a lame duck tells."""


class InfoLine:
    """Renders INFO lines; the fields that all clients share are rendered once."""

    def __init__(
        self,
        options: Options,
        server_id: str,
        name: str,
        port: int,
        *,
        auth_required: bool,
        xkey: str = "",
        topology: Topology | None = None,
    ) -> None:
        """Render what all clients share; `topology` None: the server is in no cluster."""
        host, advertised_port = advertised(options, port)
        fields: dict[str, object] = {
            "server_id": server_id,
            "server_name": name,
            "version": NATS_VERSION,
            "proto": PROTOCOL_VERSION,
            "go": RUNTIME_VERSION,
            "host": host,
            "port": advertised_port,
            "headers": not options.no_header_support,
        }
        if auth_required:
            fields["auth_required"] = True
        if options.tls is not None:
            fields |= {} if options.allow_non_tls else {"tls_required": True}
            fields |= {"tls_verify": True} if options.tls.verify else {}
            fields |= {"tls_available": True} if options.allow_non_tls else {}
        fields["max_payload"] = options.max_payload
        ending: dict[str, object] = {}
        topology = topology or Topology()
        place: dict[str, object] = {"cluster": topology.cluster} if topology.cluster else {}
        if options.jetstream.enabled:
            fields["jetstream"] = True
            place |= {"domain": options.jetstream.domain} if options.jetstream.domain else {}
            ending["api_lvl"] = API_LEVEL
        if xkey:
            ending["xkey"] = xkey
        ending["natsd"] = VERSION
        self._max_payload = options.max_payload
        self._start = "INFO " + _compact(fields)[:-1]
        self._place = _members(place | _urls(topology.connect_urls))
        self._leaving = _members(place | _urls(topology.other_urls))
        self._end = f",{_compact(ending)[1:]} \r\n"
        self._connected: dict[str, str] = {}

    @property
    def shared(self) -> tuple[str, str, str]:
        """What the lines for all clients have in common."""
        return self._start, self._place, self._end

    def render(self, cid: int, ip: str, *, nonce: bytes = b"", max_payload: int = 0) -> bytes:
        """Return an INFO line; `nonce` empty: it has none; `max_payload` 0: that of the server."""
        signed = f',"nonce":"{nonce.decode()}"' if nonce else ""
        return self._line(cid, ip, "", signed, max_payload)

    def render_connected(
        self, cid: int, ip: str, account: str, is_system: bool, *, max_payload: int = 0
    ) -> bytes:
        """Return the INFO line that tells a connected client its account."""
        more = self._connected.get(account)
        if more is None:
            fields = {"connect_info": True, "remote_account": account}
            fields |= {"acc_is_sys": True} if is_system else {}
            more = self._connected[account] = _members(fields)
        return self._line(cid, ip, more, max_payload=max_payload)

    def render_lame_duck(self, cid: int, ip: str) -> bytes:
        """Return the INFO line that tells a client to connect to another server."""
        return self._line(cid, ip, ',"ldm":true', place=self._leaving)

    def _line(
        self,
        cid: int,
        ip: str,
        more: str,
        nonce: str = "",
        max_payload: int = 0,
        place: str | None = None,
    ) -> bytes:
        place = self._place if place is None else place
        start = self._start
        if max_payload not in (0, self._max_payload):
            of_server = f'"max_payload":{self._max_payload}'
            start = start.replace(of_server, f'"max_payload":{max_payload}', 1)
        address = f',"client_ip":"{ip}"' if ip else ""
        who = f'"client_id":{cid}{address}{nonce}'
        return f"{start},{who}{place}{more}{self._end}".encode()


def _compact(fields: dict[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _urls(urls: tuple[str, ...]) -> dict[str, object]:
    return {"connect_urls": urls} if urls else {}


def _members(fields: dict[str, object]) -> str:
    """Return fields as the middle of an object; empty: there are none."""
    return "," + _compact(fields)[1:-1] if fields else ""


def advertised(options: Options, port: int) -> tuple[str, int]:
    """Return the host and port that INFO shows; `client_advertise` may lack the port."""
    advertise = options.client_advertise
    if not advertise:
        return options.host, port
    host, colon, number = advertise.rpartition(":")
    if colon and number.isdigit() and not host.endswith(":"):
        return host.strip("[]"), int(number)
    return advertise.strip("[]"), port
