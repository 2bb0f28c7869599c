"""The bodies of requests for monitoring over NATS, and their translation to HTTP parameters.

- Each body may also select the servers that are to answer (`EventFilterOptions`); others do not.
- Field names are those of nats-server's JSON, and class names those of its structs, because they
  appear in the error texts about a bad body.

Sources: nats-server's `EventFilterOptions` and the options of its monitoring endpoints
(`ConnzOptions`, `JSzOptions` and others); replies were compared with those of nats-server 2.14.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import Field, create_model

from natsd.jetstream.models.base import Base64, Int, Items, Model, Uint64
from natsd.monitor.query import Query

_STATES: Final = {1: "closed", 2: "all"}

_PARAMETERS: Final = {
    "subscriptions": "subs",
    "account": "acc",
    "consumer": "consumers",
    "direct_consumer": "direct-consumers",
    "leader_only": "leader-only",
    "stream_leader_only": "stream-leader-only",
    "include_unused": "unused",
    "filter": "queues",
}
"""Fields whose HTTP parameter has another name, except those of `HEALTHZ`."""


class EventFilterOptions(Model):
    """The filter that selects the servers which answer."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: Items[str] = Field(default_factory=list)
    domain: str = ""


class ConnzOptions(Model):
    """Options of `CONNZ`."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: Int = 0
    limit: Int = 0
    cid: Uint64 = 0
    mqtt_client: str = ""
    state: Int = 0
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


class SubszOptions(Model):
    """Options of `SUBSZ`."""

    offset: Int = 0
    limit: Int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


class RoutezOptions(Model):
    """Options of `ROUTEZ`."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


class GatewayzOptions(Model):
    """Options of `GATEWAYZ`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


class LeafzOptions(Model):
    """Options of `LEAFZ`."""

    subscriptions: bool = False
    account: str = ""


class AccountzOptions(Model):
    """Options of `ACCOUNTZ`."""

    account: str = ""


class AccountStatzOptions(Model):
    """Options of `STATZ` requests about accounts."""

    accounts: Items[str] = Field(default_factory=list)
    include_unused: bool = False


class JSzOptions(Model):
    """Options of `JSZ`."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: Int = 0
    limit: Int = 0
    raft: bool = False
    stream_leader_only: bool = False


_HEALTHZ_FLAGS: Final = ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only")

HealthzOptions = create_model(
    "HealthzOptions",
    __base__=Model,
    __doc__="Of `HEALTHZ`; some names are no names of Python.",
    **{  # type: ignore[call-overload]  # its fields are computed
        **dict.fromkeys((*_HEALTHZ_FLAGS, "details"), (bool, False)),
        **dict.fromkeys(("account", "stream", "consumer"), (str, "")),
    },
)


class IpqueueszOptions(Model):
    """Options of `IPQUEUESZ`."""

    all: bool = False
    filter: str = ""


class RaftzOptions(Model):
    """Options of `RAFTZ`."""

    account: str = ""
    group: str = ""


class ProfilezOptions(Model):
    """Options of `PROFILEZ`; `duration` is in ns."""

    name: str = ""
    debug: Int = 0
    duration: Int = 0


class ClientID(Model):
    """Options of `KICK` and `LDM`: the connection id of the client."""

    cid: Uint64 = 0


class ConnectionsRequest(Model):
    """Body of `CONNS`: the account, which must be that of the subject."""

    acc: str = ""


class SubscribersRequest(Model):
    """Body of `NSUBS`; the name of the queue group is in base64."""

    acc: str = ""
    subject: str = ""
    queue: Base64 = b""

    def queue_name(self) -> str | None:
        """Return the name of the queue group; None: the subscriptions of all groups count."""
        return self.queue.decode("utf-8", "replace") if self.queue else None


def with_filter(options: type[Model] | None, name: str) -> type[Model]:
    """Return a model that has the fields of `options`, if given, and the server filter."""
    bases = (EventFilterOptions,) if options is None else (options, EventFilterOptions)
    model: type[Model] = create_model(name, __base__=bases)
    return model


def query_of(options: Model) -> Query:
    """Return the parameters of the HTTP request that asks for the same as the options."""
    renamed = {} if isinstance(options, HealthzOptions) else _PARAMETERS
    parameters = {
        renamed.get(name, name): "true" if value is True else str(value)
        for name in type(options).model_fields
        if (value := getattr(options, name)) and not isinstance(value, list)
    }
    if parameters.pop("subscriptions_detail", None):
        parameters["subs"] = "detail"
    if "state" in parameters:
        parameters["state"] = _STATES.get(int(parameters["state"]), parameters["state"])
    return Query(parameters)


EVENT_OPTIONS: Final[Mapping[str, type[Model]]] = {
    "IDZ": with_filter(None, "IdzEventOptions"),
    "STATSZ": with_filter(None, "StatszEventOptions"),
    "VARZ": with_filter(None, "VarzEventOptions"),
    "SUBSZ": with_filter(SubszOptions, "SubszEventOptions"),
    "CONNZ": with_filter(ConnzOptions, "ConnzEventOptions"),
    "ROUTEZ": with_filter(RoutezOptions, "RoutezEventOptions"),
    "GATEWAYZ": with_filter(GatewayzOptions, "GatewayzEventOptions"),
    "LEAFZ": with_filter(LeafzOptions, "LeafzEventOptions"),
    "ACCOUNTZ": with_filter(AccountzOptions, "AccountzEventOptions"),
    "STATZ": with_filter(AccountStatzOptions, "AccountStatzEventOptions"),
    "JSZ": with_filter(JSzOptions, "JszEventOptions"),
    "HEALTHZ": with_filter(HealthzOptions, "HealthzEventOptions"),
    "PROFILEZ": with_filter(ProfilezOptions, "ProfilezEventOptions"),
    "EXPVARZ": with_filter(None, "ExpvarzEventOptions"),
    "IPQUEUESZ": with_filter(IpqueueszOptions, "IpqueueszEventOptions"),
    "RAFTZ": with_filter(RaftzOptions, "RaftzEventOptions"),
    "INFO": with_filter(None, "AccInfoEventOptions"),
    "RELOAD": EventFilterOptions,
    "KICK": with_filter(ClientID, "KickClientReq"),
    "LDM": with_filter(ClientID, "LDMClientReq"),
    "CONNS": ConnectionsRequest,
    "NSUBS": SubscribersRequest,
}
"""The model of the body for each kind of request."""
