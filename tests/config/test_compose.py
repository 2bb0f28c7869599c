"""conf/compose.yaml and what it mounts: hardened containers, reachable from this machine only."""

import json
from typing import Any

import pytest
import yaml

from natsd.cli.flags import read_command_line
from natsd.config.load import load_options
from tests.source.reading import ROOT

CONF = ROOT / "conf"
SERVICES = ("natsd", "prometheus", "grafana")


def read(name: str) -> Any:
    return yaml.safe_load((CONF / name).read_text())


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = read("compose.yaml")["services"]
    return found


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    found: dict[str, Any] = read("compose-cluster.yaml")["services"]
    return found


def test_the_servers_of_the_cluster_can_do_little(cluster: dict[str, Any]) -> None:
    assert list(cluster) == ["n1", "n2", "n3"]
    for service in cluster.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp"]
        assert "user" not in service
        assert service["volumes"] == ["./compose-cluster.conf:/etc/natsd/natsd.conf:ro"]


def test_each_server_of_the_cluster_is_told_where_clients_reach_it(cluster: dict[str, Any]) -> None:
    published = []
    for number, (name, service) in enumerate(cluster.items()):
        line = read_command_line(service["command"])
        assert line.settings == {
            "config": "/etc/natsd/natsd.conf",
            "server_name": name,
            "client_advertise": f"127.0.0.1:{4222 + number}",
        }
        clients, monitoring = service["ports"]
        assert clients == f"{line.settings['client_advertise']}:4222"
        assert monitoring == f"127.0.0.1:{8222 + number}:8222"
        published += [clients, monitoring]
    assert len(set(published)) == 6


def test_the_servers_of_the_cluster_know_each_other(cluster: dict[str, Any]) -> None:
    options = load_options(CONF / "compose-cluster.conf", {}, {}).options
    assert options.cluster is not None
    assert options.cluster.routes == tuple(f"nats://{name}:6222" for name in cluster)
    assert options.http_port == 8222


def test_what_there_is(services: dict[str, Any]) -> None:
    assert tuple(services) == SERVICES
    assert set(read("compose.yaml")["volumes"]) == {"data", "prometheus", "grafana"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_little(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert "privileged" not in service
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_no_container_runs_as_root(services: dict[str, Any]) -> None:
    user = (ROOT / "Dockerfile").read_text().rpartition("\nUSER ")[2].split()[0]
    assert int(user.partition(":")[0]) > 0
    assert "user" not in services["natsd"]
    for name in ("prometheus", "grafana"):
        assert int(services[name]["user"].partition(":")[0]) > 0


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(services: dict[str, Any], name: str) -> None:
    files = [each for each in services[name]["volumes"] if each.startswith(".")]
    assert files
    for each in files:
        source, target, mode = each.split(":")
        assert (CONF / source).is_file()
        assert target.startswith("/etc/")
        assert mode == "ro"


def test_prometheus_reads_the_port_that_natsd_has(services: dict[str, Any]) -> None:
    [job] = read("prometheus.yml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    options = load_options(CONF / "compose.conf", {}, {}).options
    assert target == f"natsd:{options.http_port}"
    assert job["metrics_path"] == "/metrics"
    assert job["params"] == {"use_internal_server_name": ["true"]}


def test_grafana_finds_its_data_and_its_dashboard(services: dict[str, Any]) -> None:
    [source] = read("grafana/datasources.yaml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    [provider] = read("grafana/dashboards.yaml")["providers"]
    folder = provider["options"]["path"]
    assert f"./grafana/dashboard.json:{folder}/natsd.json:ro" in services["grafana"]["volumes"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/natsd.json"
    assert json.loads((CONF / "grafana" / "dashboard.json").read_text())["uid"] == "natsd"


def test_nobody_can_log_in_to_grafana(services: dict[str, Any]) -> None:
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
