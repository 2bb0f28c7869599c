"""Memory and processor use of this process."""

import time

from natsd.monitor.process_usage import ProcessorUse, cores, processor_time_ns, resident_bytes

SECOND_NS = 1_000_000_000


def test_processor_use_is_the_share_of_a_core_since_the_last_sample() -> None:
    use = ProcessorUse(now_ns=0, used_ns=0)
    assert use.sample(2 * SECOND_NS, SECOND_NS) == 50.0
    assert use.sample(3 * SECOND_NS, SECOND_NS + 123_000_000) == 12.3


def test_samples_close_together_repeat_the_previous_answer() -> None:
    use = ProcessorUse(now_ns=0, used_ns=0)
    assert use.sample(SECOND_NS // 2, SECOND_NS // 2) == 0.0
    assert use.sample(SECOND_NS, SECOND_NS) == 100.0
    assert use.sample(SECOND_NS + 1, SECOND_NS) == 100.0


def test_memory_grows_with_what_is_used() -> None:
    before = resident_bytes()
    ballast = bytearray(b"x") * (64 << 20)
    assert resident_bytes() - before > 48 << 20
    del ballast


def test_working_uses_processor_time() -> None:
    before = processor_time_ns()
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    assert processor_time_ns() > before
    assert cores() >= 1
