"""`python -m natsd.bench.starts`: a line for each kind of server."""

import pytest

from natsd.bench import starts


def test_each_kind_of_server_has_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starts, "STARTS", 2)
    starts.main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["ms", "first", "start:"]
    assert len(lines) == len(starts.KINDS)
    for kind, line in zip(starts.KINDS, lines, strict=True):
        assert line.startswith(kind)
        first, *figures = map(float, line.removeprefix(kind).split())
        assert first > 0
        assert len(figures) == 4
        assert all(figure >= 0 for figure in figures)
