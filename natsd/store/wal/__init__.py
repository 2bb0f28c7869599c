"""The write-ahead log of a volume: one file whose sync commits many stores at once."""
