"""What a replica has to do, one after the other, in the order in which its group has said it."""

from typing import NamedTuple, TypeAlias

from natsd.jetstream.replicas.log_entry import FIRST
from natsd.jetstream.replicas.manifest import Manifest
from natsd.jetstream.replicas.stream_image import BuiltStream


class Built(NamedTuple):
    """Take a stream that was fetched, with the first `applied` commands or more."""

    stream: BuiltStream
    applied: int


class Lacking(NamedTuple):
    """Fetch the stream: it lacks something of what the manifest says."""

    manifest: Manifest


class Opened(NamedTuple):
    """Go on with the files: they have what the manifest says, and perhaps what was not agreed."""

    manifest: Manifest


class Reached(NamedTuple):
    """All that was rolled back is applied again: take part as before."""


class Commands(NamedTuple):
    """Apply the `number` commands of an entry that begin at an offset."""

    entry: bytes
    number: int
    at: int = FIRST


Event: TypeAlias = Opened | Reached | Commands | Built | Lacking
