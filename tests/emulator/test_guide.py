"""The guide under ``/docs``: every page of the package, as HTML without scripts of its own."""

from __future__ import annotations

import re
import sys

import aiohttp
import pytest

from pushsdk import docs
from pushsdk.emulator.web import guide


async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.headers, await response.text()


@pytest.mark.parametrize("name", docs.names())
def test_every_page_is_shown_with_links_to_all_pages(name):
    html = guide.page(name)
    assert f'<li><a href="/docs/{name}" aria-current="page">' in html
    assert all(f'href="/docs/{other}"' in html for other in docs.names())
    assert '.md"' not in html


async def test_the_guide_is_served_under_docs(emulator):
    for path in ("/docs", "/docs/", "/docs/retries"):
        status, headers, text = await get(f"{emulator.url}{path}")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "<h1" in text


async def test_the_pictures_of_the_guide_are_served(emulator):
    for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", "".join(map(docs.read, docs.names()))):
        async with aiohttp.ClientSession() as session, session.get(f"{emulator.url}/docs/{name}") as response:
            assert (response.status, response.content_type) == (200, "image/png")


@pytest.mark.parametrize("path", ["/docs/nope", "/docs/..%2fREADME", "/docs/retries/more"])
async def test_an_unknown_page_is_not_found(emulator, path):
    assert (await get(f"{emulator.url}{path}"))[0] == 404


def test_headings_can_be_linked_to_and_html_is_text(monkeypatch):
    monkeypatch.setattr(docs, "read", lambda name: "# A b\n\n## C: d!\n\n<b>x</b> [r](retries.md#wait)\n")
    html = guide.page("index")
    assert '<h2 id="c-d">' in html
    assert "&lt;b&gt;x" in html
    assert '<a href="/docs/retries#wait">' in html


def test_without_markdown_it_the_page_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    assert "pip install 'pushsdk[cli]'" in guide.page("retries")
