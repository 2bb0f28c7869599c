"""The dashboard in headless Chromium, against servers under load."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from axe_playwright_python.async_playwright import Axe
from nats.js.api import ConsumerConfig
from playwright.async_api import Browser, Page, expect

from natsd import Server
from tests.clients.wire import Wire
from tests.cluster.mesh import mesh
from tests.monitor.dashboard.browser import browsing, looking, needs_chromium
from tests.monitor.dashboard.load import under_load

pytestmark = [needs_chromium, pytest.mark.timeout(180)]

HOSTILE = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
BUSY = re.compile(r"[1-9].*/s")
FOCUS = """() => {
    const at = document.activeElement, style = getComputedStyle(at);
    return [at.tagName, at.id || at.textContent.trim().slice(0, 20) || at.ariaLabel,
            style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


def serving(directory: Path, **settings: Any) -> Server:
    jetstream = {"store_dir": str(directory / "store")}
    return Server(host="127.0.0.1", port=-1, jetstream=jetstream, **{"http_port": -1, **settings})


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.http_port}/"


async def row(page: Page, table: str, text: str) -> str:
    """Return the text of the row with that text, when there is one."""
    found = page.locator(f"#{table} tbody tr", has_text=text).first
    await expect(found).to_be_visible()
    return await found.inner_text()


async def assert_fits(page: Page) -> None:
    width, window = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= window


async def test_it_shows_what_happens(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path, max_pending=1_500_000) as server, under_load(server):
        for width, scheme in ((1600, "light"), (360, "dark")):
            async with looking(browser, url(server), width=width, scheme=scheme) as (page, errors):
                await expect(page.locator(".figure .value").first).to_have_text(BUSY)
                assert "python3" in await row(page, "connections", "metrics")
                assert "orders.>" in await row(page, "streams", "ORDERS")
                assert "of ORDERS" in await row(page, "consumers", "shipping")
                await row(page, "subjects", "telemetry.*.cpu")
                await row(page, "accounts", "$G")
                assert "Pending Bytes" in await row(page, "slow_consumers", "lazy-reader")
                await page.locator(".past summary").click()
                await expect(page.locator("#past tbody tr").first).to_be_visible()
                await assert_fits(page)
                found = await Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
                assert errors == []


async def test_routes_are_shown_in_a_cluster(browser: Browser) -> None:
    async with mesh(3, {"pool_size": 1}, http_port=-1) as servers:
        for width, scheme in ((1600, "light"), (360, "dark")):
            async with looking(browser, url(servers[0]), width=width, scheme=scheme) as (
                page,
                errors,
            ):
                shown = await row(page, "routes", "S1")
                assert "dialed from there" in shown
                await row(page, "routes", "account $SYS")
                assert await page.locator("#routes tbody tr").count() == 4
                await expect(page.locator("#facts")).to_contain_text("cluster C of 3")
                await assert_fits(page)
                found = await Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
                assert errors == []
    async with Server(host="127.0.0.1", port=-1, http_port=-1) as server:
        async with looking(browser, url(server)) as (page, errors):
            await row(page, "accounts", "$G")
            await expect(page.locator("#routes")).to_be_hidden()
            assert errors == []


async def test_it_fits_at_any_width_light_and_dark(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as server:
        grounds = set()
        for width, scheme in ((360, "light"), (800, "light"), (1600, "dark"), (2560, "dark")):
            async with looking(browser, url(server), width=width, scheme=scheme) as (page, errors):
                await assert_fits(page)
                ground = "getComputedStyle(document.body).backgroundColor"
                grounds.add((scheme, await page.evaluate(ground)))
                assert errors == []
        assert len({ground for _, ground in grounds}) == len(grounds) == 2


async def test_everything_is_reached_by_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as server:
        client = await nats.connect(server.client_url)
        await client.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
        await client.jetstream().add_consumer("ORDERS", ConsumerConfig(durable_name="shipping"))
        await client.close()
        async with looking(browser, url(server)) as (page, errors):
            await row(page, "consumers", "shipping")
            reached = []
            for _ in range(120):
                await page.keyboard.press("Tab")
                tag, name, is_visible = await page.evaluate(FOCUS)
                if tag == "BODY":
                    break
                assert is_visible, name
                reached.append(name)
                if name == "Lag":
                    await page.keyboard.press("Enter")
                if name == "Messages, moment shown":
                    await page.keyboard.press("Home")
                    first = await page.evaluate("document.activeElement.ariaValueText")
                    await page.keyboard.press("End")
                    last = await page.evaluate("document.activeElement.ariaValueText")
                    assert first <= last
                    assert "in " in first
            assert {"filter", "span", "pause", "theme", "Lag", "Expvar"} <= set(reached)
            lag = page.locator("#consumers thead th", has_text="Lag")
            await expect(lag).to_have_attribute("aria-sort", "ascending")

            await page.keyboard.press("/")
            await page.keyboard.type("shipping")
            await expect(page.locator("#consumers tbody tr")).to_have_count(1)
            await expect(page.locator("#streams .nothing")).to_have_text(
                "Nothing matches the filter."
            )
            await page.keyboard.press("Escape")
            await page.locator("#pause").focus()
            await page.keyboard.press("p")
            await expect(page.locator("#state")).to_have_text("Paused")
            await page.keyboard.press("p")
            await expect(page.locator("#state")).to_have_text("Live")
            await page.locator("#theme").focus()
            await page.keyboard.press("Enter")
            await page.keyboard.press("Enter")
            await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
            assert errors == []


async def test_hostile_names_are_only_text(tmp_path: Path, browser: Browser) -> None:
    name = "<script>window.pwned=1"  # of an account with JetStream, so that it has no slash
    accounts = {name: {"users": [{"user": HOSTILE, "password": "s3cr3t"}], "jetstream": True}}
    async with serving(tmp_path, accounts=accounts, max_control_line=100_000) as server:
        login = {"name": HOSTILE, "user": HOSTILE, "pass": "s3cr3t"}
        wire = await asyncio.to_thread(Wire, ("127.0.0.1", server.client_port))
        stream = json.dumps({"name": "BAD", "subjects": ["bad.>"], "description": HOSTILE})
        subject = HOSTILE.replace(" ", "").encode()
        lines = [
            b"CONNECT " + json.dumps(login).encode(),
            b"SUB " + subject + b" 1",
            b"SUB \xff\xfe\xe2\x80\xae.bytes 2",
            b"SUB " + b"x" * 65_536 + b" 3",
            b"PUB $JS.API.STREAM.CREATE.BAD %d\r\n%s" % (len(stream), stream.encode()),
        ]
        wire.send(b"\r\n".join(lines) + b"\r\n")
        await asyncio.to_thread(wire.sync)
        async with looking(browser, url(server), width=360) as (page, errors):
            assert HOSTILE in await row(page, "connections", "img")
            assert HOSTILE.replace(" ", "") in await row(page, "subjects", "onerror")
            assert name in await row(page, "accounts", "pwned")
            assert HOSTILE in await row(page, "streams", "BAD")
            await row(page, "subjects", ".bytes")
            assert len(await row(page, "subjects", "xxxxxx")) < 400
            assert await page.evaluate("window.pwned") is None
            assert await page.locator("main img, main script").count() == 0
            assert "s3cr3t" not in await page.content()
            await assert_fits(page)
            assert errors == []
        wire.close()


@pytest.mark.parametrize("place", ["dialog", "URL"])
async def test_it_works_with_a_password(tmp_path: Path, browser: Browser, place: str) -> None:
    """The browser asks for it once, or takes it from the URL, and sends it with all requests."""
    password = {"http_user": "ann", "http_password": "s3cr3t"}
    async with serving(tmp_path, http_base_path="/nats", **password) as server:
        at = f"127.0.0.1:{server.http_port}/nats"
        if place == "dialog":
            login, where = {"username": "ann", "password": "s3cr3t"}, f"http://{at}"
        else:
            login, where = None, f"http://ann:s3cr3t@{at}"
        async with looking(browser, where, login=login) as (page, errors):
            await row(page, "accounts", "$G")
            await expect(page.locator("#state")).to_have_text("Live")
            assert "s3cr3t" not in await page.content()
            assert errors == []


async def test_a_lost_connection_is_shown_and_a_restart_noticed(
    tmp_path: Path, browser: Browser
) -> None:
    async with serving(tmp_path, server_name="first", http_base_path="/nats") as server:
        port = server.http_port
        at = url(server) + "nats"
        async with looking(browser, at) as (page, errors):
            await expect(page.locator("#name")).to_have_text("first")
            plot = page.locator(".plot").first
            await expect(plot).to_have_attribute("aria-valuemax", re.compile("[1-9]"))
            assert errors == []
            await server.stop()
            await expect(page.locator("#state")).to_have_text("Connection lost")
            again = serving(tmp_path, server_name="second", http_base_path="/nats", http_port=port)
            async with again:
                await expect(page.locator("#name")).to_have_text("second")
                await expect(page.locator("#state")).to_have_text("Live")
                await expect(plot).to_have_attribute("aria-valuemax", "0")
