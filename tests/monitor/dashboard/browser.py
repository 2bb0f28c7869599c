"""A headless Chromium with an empty profile, and pages that remember what went wrong on them."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DEADLINE_MS = 30_000


def chromium() -> str | None:
    """Return the path of a Chromium; None: there is none."""
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), None)


needs_chromium = pytest.mark.skipif(chromium() is None, reason="there is no Chromium on PATH")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    flags = FLAGS + (["--no-sandbox"] if os.geteuid() == 0 else [])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=flags)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def looking(
    browser: Browser, url: str, *, width: int = 1600, scheme: Any = "light", login: Any = None
) -> AsyncIterator[tuple[Page, list[str]]]:
    """Yield a page with that URL, and the list of its errors; return when it shows live data.

    `login` has `username` and `password`, as a user types them.
    """
    context = await browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme=scheme,
        reduced_motion="reduce",
        http_credentials=login,
    )
    context.set_default_timeout(DEADLINE_MS)
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    try:
        await page.goto(url)
        await page.wait_for_selector('#state[data-state="live"]')
        yield page, errors
    finally:
        await context.close()
