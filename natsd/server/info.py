"""The INFO line: what the server says of itself, with what it says to one client only.

Source: nats-server 2.14 reference 3.2 (fields in that order; a space stands before the CRLF).
"""

import json

from natsd import __version__
from natsd.config import Options
from natsd.version import NATS_VERSION, PROTOCOL_VERSION, RUNTIME_VERSION


class InfoLine:
    """Renders INFO; what is the same for all clients is rendered once."""

    def __init__(self, options: Options, server_id: str, name: str, port: int) -> None:
        host, advertised_port = _advertised(options, port)
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
        if options.auth_required:
            fields["auth_required"] = True
        fields["max_payload"] = options.max_payload
        self._start = "INFO " + _compact(fields)[:-1]
        self._end = f',"natsd":"{__version__}"}} \r\n'

        self._connected: dict[str, str] = {}

    def render(self, cid: int, ip: str) -> bytes:
        """The line that greets a client."""
        return f'{self._start},"client_id":{cid},"client_ip":"{ip}"{self._end}'.encode()

    def render_connected(self, cid: int, ip: str, account: str, is_system: bool) -> bytes:
        """The line that tells a client which account it is in."""
        more = self._connected.get(account)
        if more is None:
            fields = {"connect_info": True, "remote_account": account}
            fields |= {"acc_is_sys": True} if is_system else {}
            more = self._connected[account] = _compact(fields)[1:-1]
        return f'{self._start},"client_id":{cid},"client_ip":"{ip}",{more}{self._end}'.encode()


def _compact(fields: dict[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _advertised(options: Options, port: int) -> tuple[str, int]:
    """Host and port that clients are told; `client_advertise` may lack the port."""
    advertise = options.client_advertise
    if not advertise:
        return options.host, port
    host, colon, number = advertise.rpartition(":")
    if colon and number.isdigit() and not host.endswith(":"):
        return host.strip("[]"), int(number)
    return advertise.strip("[]"), port
