"""Make pushsdk/docs/inbox.png, the emulator's page with a few pushes: ``python .ci/picture.py`` (needs chromium)."""

import asyncio
import shutil
from pathlib import Path

from playwright.async_api import async_playwright

from pushsdk import AsyncPushClient
from pushsdk.emulator import Emulator, Fault

TARGET = Path(__file__).parents[1] / "pushsdk" / "docs" / "inbox.png"
PICTURE = """<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 300 150'>
<rect width='300' height='150' fill='#fbd9b0'/>
<circle cx='212' cy='46' r='58' fill='#fdeedb'/><path d='M0 22h300' stroke='#5b1d1d' stroke-width='3'/>
<path d='M48 32l28 18v72l-28 14-28-14V50zM252 32l28 18v72l-28 14-28-14V50z' fill='#c78b35'/>
<path d='M128 28h44l26 26-14 16-8-8v70h-52V62l-8 8-14-16z' fill='#8c3030'/>
<path d='M124 92h52v9h-52z' fill='#5b1d1d'/></svg>"""
COAT = {
    "type": "MOBILE_PUSH",
    "iosEnabled": True,
    "androidEnabled": True,
    "title": {"en": "Hey {{ first_name | 'you' }}, the coat is back", "de": "Der Mantel ist wieder da"},
    "body": {"en": "The wool coat you saved is in stock again.", "de": "Der Wollmantel ist wieder auf Lager."},
    "bigImageUrl": "https://shop.example/coat.svg",
    "iosActionUrl": "https://shop.example/coats/4411",
    "androidActionUrl": "https://shop.example/coats/4411",
    "collapseId": "restock-4411",
    "badgeCount": 3,
    "ttl": 3600,
}
BOTH = {"iosEnabled": True, "androidEnabled": True}


async def fill(emulator):
    async with AsyncPushClient(emulator.base_url, emulator.api_key) as client:
        await client.send("user-1", {**BOTH, "title": {"en": "Welcome"}, "body": {"en": "Good to see you."}})
        order = {**BOTH, "title": {"en": "Your order is on its way"}, "body": {"en": "Track it in the app."}}
        for start in range(0, 1_000, 100):
            await client.send([f"user-{start + number}" for number in range(100)], order)
        segment = {"query": "SELECT user_id FROM users", "primaryKey": "user_id"}
        sale = {**BOTH, "title": {"en": "Spring sale"}, "body": {"en": "All coats until Sunday."}}
        await client.create_campaign({"name": "Spring", "segment": segment, "message": sale})
        emulator.inbox().set_faults([Fault.status(429, first=1, name="busy")])
        await client.send("user-2", {**BOTH, "title": {"en": "Your table is ready"}, "body": {"en": "Party of two."}})
        await client.send(["user-7", "user-8", "user-9"], COAT)


async def main():
    async with Emulator(api_key="shop") as emulator, async_playwright() as playwright:
        emulator.inbox().label("Shop")
        await fill(emulator)
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 660}, reduced_motion="reduce")
        image = {"content_type": "image/svg+xml", "body": PICTURE}
        await page.route("https://shop.example/**", lambda route: route.fulfill(**image))
        await page.goto(f"{emulator.url}/?images=1")
        await page.locator("img.thumb").first.wait_for()
        await page.wait_for_timeout(1_000)
        await page.screenshot(path=TARGET)
        await browser.close()


asyncio.run(main())
