"""What can be wrong with a test's server, though nothing in the test has failed."""

from natsd.testing.connection import Connection


class LeakedConnections(AssertionError):
    """A test has ended, and connections to its server are open."""

    def __init__(self, connections: list[Connection]) -> None:
        self.connections = connections
        count = f"{len(connections)} connection" + ("s are" if len(connections) > 1 else " is")
        lines = "".join(f"\n  {each}" for each in connections)
        super().__init__(
            f"{count} still open at the end:{lines}\n"
            "Close them in the test, or switch this check off: check_leaks=False for a server, "
            "@pytest.mark.natsd(check_leaks=False) for a test, natsd_check_leaks = false in "
            "pytest's configuration, or pytest --natsd-allow-leaks."
        )


class LoggedErrors(AssertionError):
    """A server that should log no errors has logged some."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("the server logged errors:" + "".join(f"\n  {line}" for line in lines))


class ProcessError(Exception):
    """A server's process did not start, ended by itself, or does not answer."""
