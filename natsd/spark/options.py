"""The options of `format("jetstream")`: their names, defaults and checks.

- Names are camelCase and matched without regard to case, as Spark matches its own. An option that
  means the same as one of Kafka's source has Kafka's name. An unknown option raises an error that
  names it and the most similar known option.
- All options are checked when a DataFrame is created, before any request to a server. An error text
  is one line, and never holds a value that may be secret.
- Durations are written as in Go (`200ms`, `1m30s`); times as RFC 3339 or in milliseconds since the
  epoch. The fields here hold seconds and nanoseconds.

Only the driver imports this module: executors receive the values that they need as plain objects.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from natsd.core.routing import is_valid
from natsd.spark.offsets import EARLIEST, Edge, parse_edge
from natsd.spark.rows import columns
from natsd.spark.subject_filters import simplified
from natsd.spark.times import parse_duration_s, parse_time_ns
from natsd.spark.wire.connecting import DEFAULT_SERVER, ClientOptions, parse_server


class DataSourceOptionsError(ValueError):
    """An option is wrong; the one-line text names the option and the reason."""


def parse_list(value: object) -> object:
    """Split a comma-separated text, `a, b`, to a tuple; other types are returned unchanged."""
    if not isinstance(value, str):
        return value
    return tuple(part for part in (part.strip() for part in value.split(",")) if part)


def parse_servers(value: object) -> object:
    """Split a list of server URLs. Raises InvalidServer, a ValueError, if one is malformed."""
    servers = parse_list(value)
    if isinstance(servers, tuple):
        for server in servers:
            parse_server(server)
    return servers


def parse_subjects(value: object) -> object:
    """Split a list of subject filters and drop those that others cover.

    Raises ValueError if one is not a valid subject, or if two overlap partly.
    """
    subjects = parse_list(value)
    if not isinstance(subjects, tuple):
        return subjects
    for subject in subjects:
        if not is_valid(subject):
            raise ValueError(f'"{subject}" is no subject')
    return simplified(subjects)


def parse_columns(value: object) -> object:
    """Split a list of column names. Raises UnknownColumn, a ValueError."""
    names = parse_list(value)
    return columns.checked(names) if isinstance(names, tuple) else names


def parse_pattern(value: object) -> object:
    """Return the value. Raises ValueError if it is not a regular expression."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
    return value


Texts = Annotated[tuple[str, ...], BeforeValidator(parse_list)]
Servers = Annotated[tuple[str, ...], BeforeValidator(parse_servers), Field(min_length=1)]
Subjects = Annotated[tuple[str, ...], BeforeValidator(parse_subjects)]
Names = Annotated[tuple[str, ...], BeforeValidator(parse_columns)]
Pattern = Annotated[str, BeforeValidator(parse_pattern)]
Seconds = Annotated[float, BeforeValidator(parse_duration_s)]
TimeNs = Annotated[int, BeforeValidator(parse_time_ns)]
Edges = Annotated[Edge, BeforeValidator(parse_edge)]
Count = Annotated[int, Field(gt=0)]


class ConnectionSettings(BaseModel):
    """Options for the connection to the servers, shared by reads and writes.

    Timeouts and intervals are in seconds; `num_retries` is how often a failed operation is retried.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )
    aliases: ClassVar[Mapping[str, str]] = {}

    servers: Servers = Field((DEFAULT_SERVER,), repr=False)
    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    credentials: str | None = None
    nkey: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    tls_handshake_first: bool = False
    tls_insecure: bool = False
    domain: str | None = None
    api_prefix: str | None = None
    inbox_prefix: str = "_INBOX"
    connect_timeout: Seconds = 5.0
    request_timeout: Seconds = 5.0
    num_retries: int = Field(3, ge=0)
    retry_interval: Seconds = 0.2

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options from the mapping that Spark passes. Raises DataSourceOptionsError."""
        known = {name.lower(): name for name in cls.names()}
        known |= {alias.lower(): name for alias, name in cls.aliases.items()}
        given: dict[str, str] = {}
        for key, value in options.items():
            name = known.get(key.lower())
            if name is None:
                raise DataSourceOptionsError(unknown(key, known))
            if name in given:
                raise DataSourceOptionsError(f'option "{name}" is given twice')
            given[name] = value
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise DataSourceOptionsError(in_one_line(error)) from None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all options, in camelCase."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="after")
    def check_connection(self) -> Self:
        """Check the combinations of connection options. Raises ValueError."""
        if self.domain and self.api_prefix:
            raise ValueError("domain and apiPrefix exclude each other: give one of them")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tlsCert and tlsKey belong together: give both")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together: give both")
        return self

    @property
    def connect(self) -> ClientOptions:
        """The connection options as plain values for executors."""
        return ClientOptions(
            servers=self.servers,
            user=self.user,
            password=revealed(self.password),
            token=revealed(self.token),
            credentials=self.credentials,
            nkey=self.nkey,
            tls=self.tls,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_server_name=self.tls_server_name,
            tls_handshake_first=self.tls_handshake_first,
            tls_insecure=self.tls_insecure,
            domain=self.domain,
            api_prefix=self.api_prefix,
            inbox_prefix=self.inbox_prefix,
            connect_timeout_s=self.connect_timeout,
            request_timeout_s=self.request_timeout,
            retries=self.num_retries,
            retry_interval_s=self.retry_interval,
        )


class ReadOptions(ConnectionSettings):
    """Options of batch and streaming reads; docs/spark.md describes each of them.

    `check_batch` and `check_stream` refuse the options of the other kind. `starting_timestamp` and
    `ending_timestamp` are ns since the epoch; `max_trigger_delay` and `ack_wait` are seconds;
    `batch_bytes` and `max_bytes_per_trigger` are bytes.
    """

    aliases: ClassVar[Mapping[str, str]] = {
        "subject": "subjects",
        "maxOffsetsPerTrigger": "maxMsgsPerTrigger",
        "minOffsetsPerTrigger": "minMsgsPerTrigger",
    }

    stream: str | None = None
    streams: Texts = ()
    streams_pattern: Pattern | None = None
    subjects: Subjects = ()
    store_dir: str | None = None
    account: str = "$G"
    key_file: str | None = None
    prev_key_file: str | None = None
    cipher: Literal["chachapoly", "chacha", "aes"] | None = None
    columns: Names = columns.NAMES
    include_headers: bool = True
    last_per_subject: bool = False

    starting_offsets: Edges | None = None
    ending_offsets: Edges | None = None
    starting_timestamp: TimeNs | None = None
    ending_timestamp: TimeNs | None = None
    fail_on_data_loss: bool = True

    push_filters: bool = False
    min_partitions: Count | None = None
    max_records_per_partition: Count | None = None
    batch_rows: int = Field(10_000, ge=1, le=1_000_000)
    batch_bytes: int = Field(8 << 20, ge=1 << 10, le=1 << 30)

    max_msgs_per_trigger: Count | None = None
    max_bytes_per_trigger: Count | None = None
    min_msgs_per_trigger: Count | None = None
    max_trigger_delay: Seconds = 900.0
    mode: Literal["log", "queue"] = "log"
    consumer: str | None = None
    ack_wait: Seconds = 300.0

    @model_validator(mode="after")
    def check_reading(self) -> Self:
        """Check the combinations of read options. Raises ValueError."""
        chosen = [bool(self.stream), bool(self.streams), bool(self.streams_pattern)]
        if sum(chosen) != 1:
            raise ValueError('give one of "stream", "streams" and "streamsPattern"')
        for name in self.named_streams:
            if not is_stream_name(name):
                raise ValueError(f'"{name}" is no name of a stream')
        if self.starting_offsets is not None and self.starting_timestamp is not None:
            raise ValueError("startingOffsets and startingTimestamp exclude each other")
        if self.ending_offsets is not None and self.ending_timestamp is not None:
            raise ValueError("endingOffsets and endingTimestamp exclude each other")
        if self.ending_offsets == EARLIEST:
            raise ValueError('endingOffsets cannot be "earliest": nothing would be read')
        if self.mode == "queue" and not self.consumer:
            raise ValueError('mode "queue" needs the option "consumer": the name of its durable')
        if self.mode == "log" and self.consumer:
            raise ValueError('option "consumer" is for mode "queue": a log is read without one')
        return self

    @property
    def named_streams(self) -> tuple[str, ...]:
        """The streams that the options name; empty if `streamsPattern` selects them."""
        return (self.stream,) if self.stream else tuple(dict.fromkeys(self.streams))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns to read, in order."""
        if self.include_headers or "columns" in self.model_fields_set:
            return self.columns
        return tuple(name for name in self.columns if name != "headers")

    def check_batch(self) -> Self:
        """Return the options if they fit a batch read. Raises DataSourceOptionsError."""
        if self.mode == "queue":
            raise DataSourceOptionsError(
                'mode "queue" is for streaming reads: use spark.readStream'
            )
        self._refuse(_STREAM_ONLY, "streaming reads (spark.readStream)")
        if not self.store_dir:
            self._refuse(_STORE_ONLY, "reading a store directory: give storeDir")
        return self

    def check_stream(self) -> Self:
        """Return the options if they fit a streaming read. Raises DataSourceOptionsError."""
        self._refuse(_BATCH_ONLY | _STORE_ONLY, "batch reads (spark.read)")
        if self.mode == "queue":
            self._refuse(_LOG_ONLY, 'mode "log": a queue begins where its consumer does')
        return self

    def _refuse(self, names: frozenset[str], what_for: str) -> None:
        for name in sorted(names & self.model_fields_set):
            raise DataSourceOptionsError(f'option "{to_camel(name)}" is for {what_for}')


_STREAM_ONLY: Final = frozenset(
    (
        "max_msgs_per_trigger",
        "max_bytes_per_trigger",
        "min_msgs_per_trigger",
        "max_trigger_delay",
        "ack_wait",
    )
)
_BATCH_ONLY: Final = frozenset(
    ("store_dir", "ending_offsets", "ending_timestamp", "last_per_subject", "push_filters")
)
_STORE_ONLY: Final = frozenset(("account", "key_file", "prev_key_file", "cipher"))
_LOG_ONLY: Final = frozenset(
    (
        "starting_offsets",
        "starting_timestamp",
        "max_bytes_per_trigger",
        "min_msgs_per_trigger",
        "max_trigger_delay",
        "streams_pattern",
        "streams",
    )
)


def revealed(secret: SecretStr | None) -> str | None:
    """Return the text of a secret; None stays None."""
    return None if secret is None else secret.get_secret_value()


def is_stream_name(name: str) -> bool:
    """Return whether the text is a valid name of a stream."""
    return not re.search(r"[\s.*>/\\]|[^\x20-\x7e]", name)


def unknown(key: str, known: Mapping[str, str]) -> str:
    """Return the error text for an unknown option, with the most similar known name."""
    near = difflib.get_close_matches(key.lower(), known, n=1)
    advice = f': do you mean "{known[near[0]]}"?' if near else ""
    return f'format("jetstream") has no option "{key}"{advice}'


def in_one_line(error: ValidationError) -> str:
    """Return the first error of the validation as one line; pydantic formats several lines."""
    first: Any = error.errors(include_url=False, include_input=False, include_context=False)[0]
    text = str(first["msg"]).removeprefix("Value error, ").replace("\n", " ")
    name = first["loc"][0] if first["loc"] else None
    return f'option "{name}": {text}' if name else text
