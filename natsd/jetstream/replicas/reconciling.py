"""The files of a replica at a start, brought back to what its group has committed.

A leader applies a change of the configuration or of the consumers when it proposes it. If it stops
before a majority agrees, its files have a change that may never happen. Messages, and what
consumers delivered, are in files only when they are committed.

Promise
- The stream and its consumers have the configurations of the manifest, and there are no other
  consumers: what was decided since comes from the log. Consumers that this server's read replica
  serves stay: only a command of the log creates them, and their state is nowhere else.
- A consumer whose deletion was not committed is missing: then the stream is fetched, unless the log
  still has the deletion (deletions.py). One that a
  read replica serves becomes what it was before it moved: its state is not here.

Offline consumers stay as they are.
"""

import logging

from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.metadata import read_replica
from natsd.jetstream.replicas.manifest import Manifest
from natsd.jetstream.stream.stream import Stream

_logger = logging.getLogger(__name__)


async def reconcile(stream: Stream, manifest: Manifest) -> set[str]:
    """Bring the stream back to the manifest; return the names of the consumers that are missing.

    Raises StoreError, OSError, ApiError.
    """
    config, expected = manifest.config, manifest.consumers
    if config is not None and config != stream.config:
        _logger.warning("JetStream: stream %s: its change was not agreed to", stream.name)
        await stream.follow_config(config)
    stream.own_consumers.expect(expected)
    for name, consumer in list(stream.consumers.items()):
        asset = expected.get(name)
        if stream.own_consumers.is_ahead(name):
            continue
        has_moved = asset is not None and consumer.server and read_replica(asset.config)
        if asset is None or (asset.created != consumer.created_ns and not has_moved):
            await consumer.delete()
        elif asset.config != consumer.config:
            await lifecycle.follow(consumer, asset)
    return expected.keys() - stream.consumers.keys() - stream.offline_consumers.reasons.keys()
