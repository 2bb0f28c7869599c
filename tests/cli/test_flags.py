"""Flags: nats-server's names and the rules of Go's flag package (reference section 1)."""

import pytest

from natsd.cli.flags import FLAGS, FlagError, read_command_line

ALIASES = {
    "host": ["a", "addr", "net"],
    "port": ["p", "port"],
    "server_name": ["n", "name", "server_name"],
    "client_advertise": ["client_advertise"],
    "pid_file": ["P", "pid"],
    "http_port": ["m", "http_port"],
    "signal": ["sl", "signal"],
    "ports_file_dir": ["ports_file_dir"],
    "log_file": ["l", "log"],
    "log_size_limit": ["log_size_limit"],
    "max_traced_msg_len": ["max_traced_msg_len"],
    "user": ["user"],
    "password": ["pass"],
    "token": ["auth"],
    "jetstream": ["js", "jetstream"],
    "store_dir": ["sd", "store_dir"],
    "jetstream.max_file_store": ["js_max_file_store"],
    "jetstream.max_memory_store": ["js_max_memory_store"],
}

READ = {
    "-p 4333": {"port": 4333},
    "--p=4333": {"port": 4333},
    "-port -1": {"port": -1},
    "-p 0x10": {"port": 16},
    "-p 010": {"port": 8},
    "-p 4_333": {"port": 4333},
    "-p 1 -p 2": {"port": 2},
    "-n a=b": {"server_name": "a=b"},
    "-n=": {"server_name": ""},
    "-n -D": {"server_name": "-D"},
    "-D": {"debug": True},
    "--debug=false": {"debug": False},
    "-D=T": {"debug": True},
    "-V": {"trace": True},
    "-VV": {"trace": True, "trace_verbose": True},
    "-DV": {"debug": True, "trace": True},
    "-DVV": {"debug": True, "trace": True, "trace_verbose": True},
    "-DV=false": {"debug": False, "trace": False},
    "-T=0": {"logtime": False},
    "-logtime_utc": {"logtime_utc": True},
    "-js": {"jetstream": True},
    "-js=false -sd x": {"jetstream": False, "store_dir": "x"},
    "-js_max_file_store 10G": {"jetstream.max_file_store": "10G"},
    "--js_max_memory_store=1024": {"jetstream.max_memory_store": 1024},
    "-c=x.conf -t": {"config": "x.conf", "test": True},
    "--cluster nats://0.0.0.0:6222": {"cluster.listen": "nats://0.0.0.0:6222"},
    "-tls=false": {"tls.enabled": False},
    "-tlscert c --tlskey=k": {"tls.cert_file": "c", "tls.key_file": "k"},
    "": {},
}

MISTAKES = {
    "-foo": "flag provided but not defined: -foo",
    "-p": "flag needs an argument: -p",
    "-p abc": 'invalid value "abc" for flag -p: parse error',
    "-p 09": 'invalid value "09" for flag -p: parse error',
    "-p 9223372036854775808": 'invalid value "9223372036854775808" for flag -p: value out of range',
    "-D=maybe": 'invalid boolean value "maybe" for -D: parse error',
    "---p": "bad flag syntax: ---p",
    "-=1": "bad flag syntax: -=1",
    "-js=perhaps": 'invalid boolean value "perhaps" for -js: parse error',
    "-sd": "flag needs an argument: -sd",
}


@pytest.mark.parametrize("setting", ALIASES)
def test_all_aliases_with_one_or_two_dashes(setting: str) -> None:
    for name in ALIASES[setting]:
        for dashes in ("-", "--"):
            assert read_command_line([f"{dashes}{name}", "1"]).settings.keys() == {setting}
            assert read_command_line([f"{dashes}{name}=1"]).settings.keys() == {setting}


@pytest.mark.parametrize("line", READ)
def test_reads_as_go_does(line: str) -> None:
    assert read_command_line(line.split()).settings == READ[line]


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_flag(line: str) -> None:
    with pytest.raises(FlagError) as caught:
        read_command_line(line.split())
    assert str(caught.value) == MISTAKES[line]


def test_a_bare_word_ends_the_flags() -> None:
    line = read_command_line(["-D", "version", "-p", "1"])
    assert line.settings == {"debug": True}
    assert line.words == ["version", "-p", "1"]
    assert read_command_line(["--", "-D"]).words == ["-D"]
    assert read_command_line(["-", "-D"]).words == ["-", "-D"]


def test_actions_are_no_settings() -> None:
    line = read_command_line(["-h", "--version"])
    assert line.actions == {"help", "version"}
    assert not line.settings
    assert not read_command_line(["-h=false"]).actions


def test_every_flag_of_the_reference_is_there() -> None:
    names = (
        "a addr net p port n name server_name client_advertise P pid m http_port ms https_port "
        "c config t sl signal ports_file_dir l log T logtime logtime_utc s syslog r remote_syslog "
        "D debug V trace VV DV DVV log_size_limit max_traced_msg_len js jetstream sd store_dir "
        "user pass auth tls tlsverify tlscert tlskey tlscacert routes cluster cluster_listen "
        "cluster_name cluster_advertise no_advertise connect_retries profile h help v version "
        "help_tls"
    )
    assert set(names.split()) <= FLAGS.keys()
