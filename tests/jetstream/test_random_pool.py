"""The random pool returns every byte once."""

from natsd.jetstream.random_pool import DRAWN_BYTES, RandomPool


def test_bytes_are_those_of_the_source_and_none_is_given_twice() -> None:
    drawn: list[bytes] = []

    def source(n: int) -> bytes:
        drawn.append(bytes([len(drawn)]) * n)
        return drawn[-1]

    pool = RandomPool(source)
    given = b"".join(pool(n) for n in (4, 0, DRAWN_BYTES - 4))
    assert given == drawn[0]
    assert pool(1) == b"\x01"
    assert pool(DRAWN_BYTES + 5) == drawn[2]
    assert len(drawn[2]) == DRAWN_BYTES + 5
