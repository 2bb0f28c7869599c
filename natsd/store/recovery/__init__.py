"""Opening a stream after a stop or a crash: by its index, or by a scan of all its blocks."""
