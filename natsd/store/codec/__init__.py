"""The bytes of the store: records, checksums, and compressed and encrypted blocks."""
