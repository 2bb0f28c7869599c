def key_name(subject: bytes, token: int) -> bytes:
    """For tests."""
