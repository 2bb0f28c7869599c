"""The summary of a nats-server, made from `/varz`, `/connz`, `/jsz` and `/accstatz`.

Rates are the growth of counters between two looks, so the first summary has none; the history
begins with the first look.
"""

import time
from collections import deque
from typing import Any, Final

from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import shown
from natsd.top.endpoints import Endpoints, Fields, TopError
from natsd.top.source import SAMPLES_MAX
from natsd.top.texts import age_s

CONNECTIONS_MAX: Final = 256
SLOW_MAX: Final = 20
TRAFFIC: Final = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
SAMPLED: Final = ("time", *TRAFFIC, "connections", "cpu", "mem")


class NatsServerSource:
    """The summary of a server that has no `/summaryz`."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._meters = {name: Meter() for name in ("server", "clients", "js", "subs", "accounts")}
        self._history: dict[str, deque[Any]] = {
            field: deque(maxlen=SAMPLES_MAX) for field in SAMPLED
        }

    def _get(self, path: str) -> Fields:
        answer = self._endpoints.get(path)
        assert answer is not None
        return answer

    def summary(self) -> Fields:
        """Return the summary with its whole history. Raises TopError."""
        for meter in self._meters.values():
            meter.look(time.monotonic_ns())
        varz = self._get("varz")
        if "server_id" not in varz:
            raise TopError(f"{self._endpoints.url} is not the monitoring port of a NATS server")
        connz = self._get(f"connz?auth=1&subs=detail&sort=msgs_to&limit={CONNECTIONS_MAX}")
        closed = self._get(f"connz?auth=1&state=closed&sort=stop&limit={CONNECTIONS_MAX}")
        rates = self._rates("server", varz["server_id"], varz)
        self._sample(varz, rates)
        now = varz["now"]
        streams, consumers = self._streams(varz)
        clients = connz.get("connections") or []
        return {
            "server": _server(varz),
            "problems": [],
            "totals": {name: varz.get(name, 0) for name in (*TRAFFIC, "connections", "mem")}
            | {name: varz.get(name, 0) for name in ("subscriptions", "slow_consumers")},
            "rates": rates | {"cpu": varz.get("cpu")},
            "jetstream": _jetstream(varz, streams),
            "history": {field: list(each) for field, each in self._history.items()},
            "connections": {
                "total": connz.get("total", 0),
                "rows": [self._connection(each, now) for each in clients],
            },
            "streams": {"total": len(streams), "rows": streams},
            "consumers": {"total": len(consumers), "rows": consumers},
            "subjects": self._subjects(clients),
            "accounts": self._accounts(),
            "slow_consumers": {
                "total": varz.get("slow_consumers", 0),
                "rows": [
                    _names(each)
                    | {"stop": each.get("stop"), "reason": each["reason"]}
                    | {"out_msgs": each.get("out_msgs", 0)}
                    for each in closed.get("connections") or []
                    if each.get("reason", "").startswith("Slow Consumer")
                ][:SLOW_MAX],
            },
        }

    def _rates(self, meter: str, key: object, counters: Fields) -> Fields:
        rates = self._meters[meter].rates(
            str(key), tuple(counters.get(name, 0) for name in TRAFFIC)
        )
        return {
            name: rounded(rate)
            for name, rate in zip(TRAFFIC, rates or (None,) * len(TRAFFIC), strict=True)
        }

    def _sample(self, varz: Fields, rates: Fields) -> None:
        if rates["in_msgs"] is None:
            return
        sample = {"time": time.time_ns() / 1e9, **rates}
        sample |= {name: varz.get(name, 0) for name in ("connections", "cpu", "mem")}
        for field, values in self._history.items():
            values.append(sample[field])

    def _connection(self, row: Fields, now: str) -> Fields:
        rates = self._rates("clients", row["cid"], row)
        return _names(row) | {
            "lang": row.get("lang", ""),
            "version": row.get("version", ""),
            "start": row.get("start"),
            "idle_s": age_s(row.get("last_activity"), now),
            "pending_bytes": row.get("pending_bytes", 0),
            "subscriptions": row.get("subscriptions", 0),
            **{f"{name}_rate": rate for name, rate in rates.items()},
        }

    def _one_rate(self, meter: str, key: tuple[str, ...], counter: int) -> float | None:
        rates = self._meters[meter].rates(key, (counter,))
        return None if rates is None else rounded(rates[0])

    def _streams(self, varz: Fields) -> tuple[list[Fields], list[Fields]]:
        streams: list[Fields] = []
        consumers: list[Fields] = []
        if not varz.get("jetstream"):
            return streams, consumers
        jsz = self._get("jsz?consumers=1&config=1")
        for account in jsz.get("account_details") or []:
            for stream in account.get("stream_detail") or []:
                streams.append(self._stream(account["name"], stream))
                for each in stream.get("consumer_detail") or []:
                    consumers.append(self._consumer(account["name"], stream["name"], each))
        return streams, consumers

    def _stream(self, account: str, stream: Fields) -> Fields:
        state, config = stream["state"], stream.get("config") or {}
        full = max(
            state[used] / config[most] if config.get(most, 0) > 0 else 0.0
            for used, most in (("messages", "max_msgs"), ("bytes", "max_bytes"))
        )
        return {
            "account": shown(account),
            "name": shown(stream["name"]),
            "description": shown(config.get("description", "")),
            "subjects": [shown(each) for each in config.get("subjects") or []],
            "storage": config.get("storage", ""),
            "messages": state["messages"],
            "bytes": state["bytes"],
            "consumers": state.get("consumer_count", 0),
            "first_ts": state["first_ts"] if state["messages"] else None,
            "last_ts": state["last_ts"] if state["last_seq"] else None,
            "msgs_rate": self._one_rate("js", (account, stream["name"]), state["last_seq"]),
            "full": full,
        }

    def _consumer(self, account: str, stream: str, row: Fields) -> Fields:
        delivered = row.get("delivered") or {}
        key = (account, stream, row["name"])
        return {
            "account": shown(account),
            "stream": shown(stream),
            "name": shown(row["name"]),
            **{
                name: row.get(name, 0)
                for name in ("num_pending", "num_ack_pending", "num_redelivered", "num_waiting")
            },
            "msgs_rate": self._one_rate("js", key, delivered.get("consumer_seq", 0)),
            "last_delivered": delivered.get("last_active"),
        }

    def _subjects(self, clients: list[Fields]) -> Fields:
        found: dict[tuple[str, str], Fields] = {}
        for client in clients:
            account = client.get("account", "$G")
            for each in client.get("subscriptions_list_detail") or []:
                subject = "_INBOX.>" if each["subject"].startswith("_INBOX.") else each["subject"]
                row = found.setdefault(
                    (account, subject),
                    {"account": shown(account), "subject": shown(subject), "stream": ""}
                    | {"subscriptions": 0, "msgs": 0, "msgs_rate": None},
                )
                row["subscriptions"] += 1
                row["msgs"] += each.get("msgs", 0)
                key = (str(client["cid"]), each["sid"])
                rate = self._one_rate("subs", key, each.get("msgs", 0))
                if rate is not None:
                    row["msgs_rate"] = (row["msgs_rate"] or 0) + rate
        return {"total": len(found), "rows": list(found.values())}

    def _accounts(self) -> Fields:
        rows = []
        for each in self._get("accstatz?unused=1").get("account_statz") or []:
            counters = {
                f"{way}_{unit}": (each.get(name) or {}).get(unit, 0)
                for way, name in (("in", "received"), ("out", "sent"))
                for unit in ("msgs", "bytes")
            }
            rates = self._rates("accounts", each["acc"], counters)
            rows.append(
                {
                    "name": shown(each["acc"]),
                    "name_tag": shown(each.get("name", "")),
                    "connections": each.get("conns", 0),
                    "subscriptions": each.get("num_subscriptions", 0),
                    "slow_consumers": each.get("slow_consumers", 0),
                    **{f"{name}_rate": rate for name, rate in rates.items()},
                }
            )
        return {"total": len(rows), "rows": rows}


def _server(varz: Fields) -> Fields:
    return {
        "id": varz["server_id"],
        "name": shown(varz.get("server_name", "")),
        "version": varz.get("natsd", ""),
        "nats_version": varz.get("version", ""),
        "host": varz.get("host", ""),
        "port": varz.get("port", 0),
        "now": varz["now"],
        "uptime_s": age_s(varz["start"], varz["now"]),
        "cores": varz.get("cores", 0),
    }


def _jetstream(varz: Fields, streams: list[Fields]) -> Fields | None:
    stats = (varz.get("jetstream") or {}).get("stats")
    if not stats:
        return None
    messages = sum(each["messages"] for each in streams)
    return {"storage": stats["storage"], "memory": stats["memory"], "messages": messages}


def _names(row: Fields) -> Fields:
    return {
        "cid": row["cid"],
        "name": shown(row.get("name", "")),
        "account": shown(row.get("account", "$G")),
        "user": shown(row.get("authorized_user", "")),
        "ip": row.get("ip", ""),
        "port": row.get("port", 0),
    }
