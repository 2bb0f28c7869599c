"""What counts as left behind by a server, in a process where other things come and go."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from natsd import Server
from tests.server.leftovers import is_module, leftovers


def test_what_vanishes_is_no_leftover() -> None:
    reading, writing = os.pipe()
    gone = Server()
    before = leftovers()
    os.close(reading)
    os.close(writing)
    del gone
    assert not leftovers().new_since(before)


def test_what_vanishes_hides_nothing_that_is_new() -> None:
    """The new pipe has the numbers of the old one, and there are as many objects and threads."""
    old, stays = os.pipe(), threading.Event()
    gone = Server()
    before = leftovers()
    for descriptor in old:
        os.close(descriptor)
    del gone
    new, added = os.pipe(), Server()
    thread = threading.Thread(target=stays.wait)
    thread.start()
    found = leftovers().new_since(before)
    stays.set()
    thread.join()
    for descriptor in new:
        os.close(descriptor)
    assert new == old
    assert len(found.descriptors) == 2
    assert found.threads == (thread,)
    assert len(found.objects) == 1
    assert found.objects[0] is added


def test_an_import_in_a_thread_is_waited_for(tmp_path: Path) -> None:
    """Another server may still import modules; it closes the file a moment later."""
    module = tmp_path / "imported.py"
    module.write_text("")
    before = leftovers()
    file = module.open()
    assert any(map(is_module, (f"{file.fileno()} {file.name}",)))
    closing = threading.Timer(0.05, file.close)
    closing.start()
    assert not leftovers().new_since(before).descriptors
    closing.join()
