"""What a failed test shows of its servers: what they have logged since the test began."""

from collections.abc import Generator
from typing import Any, Final

import pytest

from natsd.testing.nats_server import NatsServer

LINES_MAX: Final = 500
"""Lines that are shown of a server; of more, the last ones."""
_NAME: Final = "natsd-reports"


class Reports:
    """A plugin that adds the logs of the servers to the reports of failed tests.

    It is registered when the first server starts, so that it costs other test runs nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[NatsServer, int] = {}  # servers, and their lines before the test
        self._ended: list[NatsServer] = []

    def add(self, server: NatsServer) -> None:
        """Show the server's log from here on."""
        self._seen[server] = 0

    def remove(self, server: NatsServer) -> None:
        """Show the server's log no more after this test."""
        self._ended.append(server)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the logs to the report of a phase that has failed."""
        report = yield
        if report.failed:
            for server, seen in self._seen.items():
                lines = server.log.lines[seen:][-LINES_MAX:]
                report.sections.append((f"natsd log of {server.client_url}", "\n".join(lines)))
        return report

    def pytest_runtest_logfinish(self) -> None:
        """Forget the servers that have ended; the others' logs are shown from here on."""
        for server in self._ended:
            self._seen.pop(server, None)
        self._ended.clear()
        for server in self._seen:
            self._seen[server] = len(server.log.lines)


def reports_of(config: pytest.Config) -> Reports:
    """Return the plugin that shows logs; register it first if it is not."""
    plugin: Any = config.pluginmanager.get_plugin(_NAME)
    if plugin is None:
        plugin = Reports()
        config.pluginmanager.register(plugin, _NAME)
    reports: Reports = plugin
    return reports
