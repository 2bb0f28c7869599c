"""Publishers stay within their window ahead of their subscribers."""

from natsd.bench.progress import Progress, Window


def test_counters_are_shared_between_those_who_attach() -> None:
    with Progress.create(3) as ours:
        theirs = Progress.attach(ours.path)
        theirs.counters[2] = 1 << 40
        assert list(ours.counters) == [0, 0, 1 << 40]
        theirs.close()
        assert ours.path.exists()
    assert not ours.path.exists()


def test_the_slowest_subscriber_decides_when_all_get_everything() -> None:
    window = Window((0, 1), (2, 3), shared=False, messages_ahead_max=100)
    counters = memoryview(bytearray(4 * 8)).cast("Q")
    counters[0], counters[1], counters[2], counters[3] = 60, 40, 90, 30
    assert window.delivered(counters) == 30
    assert window.room(counters) == 100 - (100 - 30)


def test_a_group_shares_the_messages() -> None:
    window = Window((0,), (1, 2), shared=True, messages_ahead_max=100)
    counters = memoryview(bytearray(3 * 8)).cast("Q")
    counters[0], counters[1], counters[2] = 100, 30, 50
    assert window.delivered(counters) == 80
    assert window.room(counters) == 80


def test_without_subscribers_there_is_always_room() -> None:
    window = Window((0,), (), shared=False, messages_ahead_max=100)
    counters = memoryview(bytearray(8)).cast("Q")
    counters[0] = 1_000_000
    assert window.room(counters) == 100
