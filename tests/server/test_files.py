"""The pid file and the ports file, as nats-server's `Server.logPid` and `logPorts` write them."""

import json
import os
from pathlib import Path

import pytest

from natsd.server.files import (
    FileError,
    ports_file,
    reachable_urls,
    remove_pid_file,
    remove_ports_file,
    write_pid_file,
    write_ports_file,
)
from natsd.server.interfaces import local_addresses


def test_the_pid_file_holds_the_pid_alone(tmp_path: Path) -> None:
    path = tmp_path / "natsd.pid"
    write_pid_file(path)
    assert path.read_bytes() == str(os.getpid()).encode()
    remove_pid_file(path)
    assert not path.exists()


def test_somebody_elses_pid_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "natsd.pid"
    path.write_text("1")
    remove_pid_file(path)
    assert path.exists()
    remove_pid_file(tmp_path / "none")


def test_an_unwritable_pid_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "pid"
    with pytest.raises(FileError) as caught:
        write_pid_file(path)
    assert str(caught.value) == (f"Could not write pidfile: open {path}: no such file or directory")


def test_the_ports_file_is_nats_servers(tmp_path: Path) -> None:
    path = ports_file(tmp_path, "natsd")
    assert path == tmp_path / f"natsd_{os.getpid()}.ports"
    ports = {
        "nats": reachable_urls("nats", "127.0.0.1", 4222),
        "monitoring": reachable_urls("http", "::1", 8222),
    }
    write_ports_file(path, ports)
    assert path.read_text() == (
        '{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://[::1]:8222"]}'
    )
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    remove_ports_file(path)
    assert not path.exists()


def test_an_unwritable_ports_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "natsd_1.ports"
    with pytest.raises(FileError) as caught:
        write_ports_file(path, {})
    assert str(caught.value).startswith(f"Error writing ports file ({path}): open ")


def test_a_server_on_all_interfaces_names_them() -> None:
    addresses = local_addresses()
    assert "127.0.0.1" in addresses
    urls = reachable_urls("nats", "0.0.0.0", 4222)
    assert urls[0].startswith("nats://")
    assert urls == [f"nats://{address}:4222" for address in addresses if ":" not in address]
    assert json.dumps(reachable_urls("nats", "::", 4222))
