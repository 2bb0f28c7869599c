"""Archives of streams: `STREAM.SNAPSHOT`, `STREAM.RESTORE`, and the same offline."""
