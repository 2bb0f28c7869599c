def key_name(subject: bytes, token: int) -> bytes:
    """Return the key of a subject. For tests."""
