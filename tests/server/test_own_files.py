"""The server does not write to what another user has put in place of one of its files.

The tests that need another user run as root only, as the attack does.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from natsd.config import make_options
from natsd.server.files import FileError, write_pid_file, write_ports_file
from natsd.server.log import DaemonLog, LogError
from natsd.server.own_files import make_private, open_own, shared_reason, write_own
from tests.cli.daemon import Start, running_daemons

NOBODY = 65534
SECRET = b"root's own"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

Plant = Callable[[Path, Path], None]


def by_symbolic_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim)
    os.lchown(place, NOBODY, NOBODY)


def by_hard_link(place: Path, victim: Path) -> None:
    place.hardlink_to(victim)


def by_foreign_file(place: Path, victim: Path) -> None:
    place.touch()
    os.chown(place, NOBODY, NOBODY)


PLANTED = pytest.mark.parametrize("plant", [by_symbolic_link, by_hard_link, by_foreign_file])


@pytest.fixture
def start() -> Iterator[Start]:
    with running_daemons() as start:
        yield start


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Yield a file of root's that must stay unchanged."""
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    yield path
    assert path.read_bytes() == SECRET


@needs_root
@PLANTED
def test_the_pid_file_is_not_written_through_what_others_planted(
    tmp_path: Path, victim: Path, plant: Plant
) -> None:
    plant(tmp_path / "natsd.pid", victim)
    with pytest.raises(FileError, match="Could not write pidfile"):
        write_pid_file(tmp_path / "natsd.pid")


@needs_root
@PLANTED
def test_the_ports_file_is_not_written_through_what_others_planted(
    tmp_path: Path, victim: Path, plant: Plant
) -> None:
    path = tmp_path / "natsd_1.ports"
    plant(path.with_suffix(".tmp"), victim)
    with pytest.raises(FileError, match="Error writing ports file"):
        write_ports_file(path, {"nats": []})


@needs_root
@PLANTED
def test_the_log_is_not_written_through_what_others_planted(
    tmp_path: Path, victim: Path, plant: Plant
) -> None:
    plant(tmp_path / "log", victim)
    with pytest.raises(LogError, match=r"another user|hard link"):
        DaemonLog(make_options(log_file=tmp_path / "log"))


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "log").symlink_to(tmp_path / "real")
    log = DaemonLog(make_options(log_file=tmp_path / "log"))
    log.close()
    write_own(tmp_path / "log", b"x", 0o600)
    assert (tmp_path / "real").read_bytes() == b"x"


def test_a_terminal_or_a_pipe_may_be_anybodys() -> None:
    os.close(open_own(Path("/dev/null"), os.O_WRONLY, 0o600))


def test_a_file_is_written_anew_not_behind_what_it_held(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"longer than the next")
    write_own(path, b"short", 0o600)
    assert path.read_bytes() == b"short"


def test_a_directory_is_made_for_one_user(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    make_private(directory)
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert shared_reason(directory) == ""
    directory.chmod(0o777)
    assert shared_reason(directory) == "can be written to by other users"
    with pytest.raises(PermissionError, match="can be written to by other users"):
        make_private(directory)


@needs_root
def test_a_directory_of_another_user_is_not_ones_own(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir(0o700)
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_private(directory)


def planted_store(place: Path, victims: Path) -> None:
    """Prepare the default store directory as an attacker would.

    The lock file is a symbolic link to a file of root's, and the directories belong to another
    user.
    """
    (place / "jetstream").mkdir(parents=True)
    (place / "jetstream" / "natsd.lock").symlink_to(victims)
    for path in (place, place / "jetstream"):
        os.chown(path, NOBODY, NOBODY)


@needs_root
@pytest.mark.parametrize("as_link", [False, True])
def test_the_daemon_does_not_start_in_a_default_place_of_another_user(
    start: Start, tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch, as_link: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    place = tmp_path / "natsd-0"
    if as_link:
        planted_store(tmp_path / "elsewhere", victim)
        by_symbolic_link(place, tmp_path / "elsewhere")
    else:
        planted_store(place, victim)
    daemon = start("-js")
    assert daemon.wait() == 1
    assert daemon.texts[-1].startswith(
        f"FTL Can't start JetStream: the default storage directory {place}: "
    )
    assert daemon.texts[-1].endswith("; choose one with -sd")


@needs_root
def test_the_daemon_does_not_follow_a_planted_file_in_a_directory_that_was_chosen(
    start: Start, tmp_path: Path, victim: Path
) -> None:
    planted_store(tmp_path / "store", victim)
    daemon = start("-js", "-sd", str(tmp_path / "store"))
    assert daemon.wait() == 1
    assert "natsd.lock" in daemon.texts[-1]
    directory = tmp_path / "store" / "jetstream"
    warning = f"WRN JetStream: storage directory {directory} belongs to another user"
    assert any(line.startswith(warning) for line in daemon.texts)
