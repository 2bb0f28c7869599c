"""The files of the dashboard, and the headers that they are sent with."""

import re

import pytest

from natsd.monitor.dashboard import FILES, HEADERS, PAGE, dashboard_file
from tests.monitor.probing import probing

SIZE_MAX = 60_000


async def test_files_have_their_types_and_a_strict_policy() -> None:
    async with probing() as probe:
        for name, kind in FILES.items():
            status, _, headers = await probe.ask("/" if name == PAGE else f"/{name}")
            assert status == 200
            assert headers["Content-Type"] == f"{kind}; charset=utf-8"
            assert {header: headers[header] for header in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


async def test_no_answer_is_taken_for_markup_by_a_browser() -> None:
    async with probing() as probe:
        for path in (
            "/varz",
            "/metrics",
            "/connz?limit=<script>",
            "/healthz",
            "/nowhere",
            "//varz",
        ):
            _, _, headers = await probe.ask(path)
            assert headers["X-Content-Type-Options"] == "nosniff", path


async def test_the_page_links_to_all_endpoints() -> None:
    page = dashboard_file(PAGE, "").decode()
    for path in ("varz", "connz", "jsz", "metrics", "debug/vars"):
        assert f'href="./{path}"' in page


async def test_only_these_files_are_served() -> None:
    async with probing() as probe:
        for path in ("/__init__.py", "/../varz.py", "/%2e%2e/varz.py", "/dashboard.js/", "/x.css"):
            assert (await probe.ask(path))[0] == 404


def test_nothing_is_inline_or_from_elsewhere() -> None:
    texts = {name: dashboard_file(name, "").decode() for name in FILES}
    assert sum(map(len, texts.values())) < SIZE_MAX
    for name, text in texts.items():
        assert not re.search(r"\sstyle=|\son\w+=|<script>|<style", text), name
        assert set(re.findall(r"https?://[^\"' )]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        for markup in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert markup not in text, name


@pytest.mark.parametrize(
    ("base_path", "base"),
    [
        ("", None),
        ("/", None),
        ("/nats", "./nats/"),
        ("nats/", "./nats/"),
        ("/a/b c", "./b%20c/"),
        ('/"><script>', "./%22%3E%3Cscript%3E/"),
    ],
)
def test_links_lead_below_the_base_path(base_path: str, base: str | None) -> None:
    page = dashboard_file(PAGE, base_path).decode()
    assert re.findall(r'<base href="([^"]+)">', page) == ([base] if base else [])
