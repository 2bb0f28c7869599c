"""A server with JetStream in a process of its own, to be killed."""

from __future__ import annotations

from pathlib import Path

from tests.clients.target import ProcessTarget, start_process


def serve_files(directory: Path, **settings: object) -> ProcessTarget:
    """A server on these files, ready; `kill` ends it as a power cut ends a process."""
    jetstream = {"store_dir": str(directory), **settings}
    return start_process({"jetstream": jetstream})


def kill(target: ProcessTarget) -> None:
    """SIGKILL, and the process is gone on return."""
    target.process.kill()
    target.process.wait()
    target.stop()
