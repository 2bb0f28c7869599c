"""Snapshots of streams: `STREAM.SNAPSHOT`, `STREAM.RESTORE`, and both without a server."""
