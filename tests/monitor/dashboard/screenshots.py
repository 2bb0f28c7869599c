"""Renews the pictures of the dashboard in docs/images.

python -m tests.monitor.dashboard.screenshots [seconds of load before them]
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from natsd import Server
from tests.monitor.dashboard.browser import browsing, looking
from tests.monitor.dashboard.load import under_load
from tests.source.reading import ROOT

PICTURES = {
    "dashboard-light": (1600, "light"),
    "dashboard-dark": (1600, "dark"),
    "dashboard-360-light": (360, "light"),
    "dashboard-360-dark": (360, "dark"),
}


async def take(seconds: float) -> None:
    """Put a server under load for that long, then take all pictures."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            Server(
                host="127.0.0.1",
                port=-1,
                http_port=-1,
                server_name="shop-eu-1",
                max_pending=1_500_000,
                jetstream={"store_dir": directory},
            ) as server,
            under_load(server),
            browsing() as browser,
        ):
            await asyncio.sleep(seconds)
            for name, (width, scheme) in PICTURES.items():
                url = f"http://127.0.0.1:{server.http_port}/"
                async with looking(browser, url, width=width, scheme=scheme) as (page, _):
                    await page.wait_for_selector("#consumers tbody tr")
                    await page.wait_for_timeout(2500)  # the second answer has rates
                    await page.screenshot(path=ROOT / "docs" / "images" / f"{name}.png")


if __name__ == "__main__":
    Path(ROOT / "docs" / "images").mkdir(exist_ok=True)
    asyncio.run(take(float(sys.argv[1]) if sys.argv[1:] else 90.0))
