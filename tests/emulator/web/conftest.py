"""A running emulator, and its page in Debian's chromium. Without a browser the tests are skipped, and say why.

``PUSHSDK_REQUIRE_BROWSER=1`` makes a missing browser a failure, ``PUSHSDK_BROWSER=0`` switches these tests off,
``PUSHSDK_CHROMIUM`` names another browser. Nothing here sleeps: it is the page that says when it is ready.
"""

import os
import shutil
from contextlib import AsyncExitStack
from importlib.util import find_spec

import pytest
from support.control_api import Api

from pushsdk.emulator import Emulator

# No background activity of the browser.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 20_000  # ms; a busy machine is no failure


def chromium():
    """The browser's path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("PUSHSDK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(autouse=True)
def _browser_or_reason():
    if os.environ.get("PUSHSDK_BROWSER") == "0":
        pytest.skip("PUSHSDK_BROWSER=0")
    is_complete = chromium() and all(map(find_spec, ("playwright", "axe_playwright_python")))
    if not is_complete:
        end = pytest.fail if os.environ.get("PUSHSDK_REQUIRE_BROWSER") == "1" else pytest.skip
        end("needs chromium (apt-get install chromium) and: pip install playwright axe-playwright-python")


class Desk:
    """One emulator and one browser: sends requests to the one, shows its page in the other.

    ``complaints`` are errors of the console and of scripts, ``strangers`` the requests that left the emulator,
    ``dialogs`` what tried to talk to the user. A test that does not expect one finds them empty at its end.
    """

    def __init__(self, emulator, browser):
        self.emulator = emulator
        self.browser = browser
        self.origin = emulator.base_url.removesuffix("/external/api")
        self.complaints = []
        self.strangers = []
        self.dialogs = []

    async def page(self, path="/", *, width=1440, height=900, dark=False):
        """A new page, shown once its connection is live."""
        context = await self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE)
        page = await context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.on("dialog", self._dialog)
        await page.goto(self.origin + path)
        await page.locator(".connection[data-state=live]").wait_for()
        return page

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, url):
        if not url.startswith((self.origin + "/", "about:", "blob:")):
            self.strangers.append(url)

    async def _dialog(self, dialog):
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    @property
    def api(self):
        return Api(self.emulator)

    async def send(self, body, *, path="/v1/push", api_key=None):
        """POST to the service, bytes as they are; return the status, 0 without a response."""
        try:
            key = api_key or self.emulator.api_key
            return (await self.api.raw("POST", f"/external/api{path}", body, Api_Key=key)).status
        except ConnectionError:
            return 0

    async def push(self, title="Hello", *user_ids, **fields):
        """Send a push; fields are the message's, as on the wire."""
        titles = {"en": title} if isinstance(title, str) else title
        message = {"type": "MOBILE_PUSH", "iosEnabled": True, "androidEnabled": True, "title": titles, **fields}
        return await self.send({"userIds": user_ids or ("user-1",), "message": message})

    async def theirs(self, title, key="another-key"):
        """Send a push with another key."""
        message = {"title": {"en": title}, "iosEnabled": True}
        assert await self.send({"userIds": ["u"], "message": message}, api_key=key) == 204

    async def control(self, *request):
        """Call the control API for the emulator's own inbox."""
        return await self.api.done(*request)


@pytest.fixture
async def open_desk():
    """``await open_desk(**options)``: a desk over an emulator with these arguments."""
    from playwright.async_api import async_playwright

    async with AsyncExitStack() as stack:

        async def opened(**options):
            emulator = await stack.enter_async_context(Emulator(**options))
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
            stack.push_async_callback(browser.close)
            return Desk(emulator, browser)

        yield opened


@pytest.fixture
async def desk(open_desk):
    """A desk that fails the test for any console message or unexpected request."""
    opened = await open_desk()
    yield opened
    assert opened.complaints == []
    assert opened.strangers == []
    assert opened.dialogs == []
