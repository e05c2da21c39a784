"""The guide under ``/docs``: every page of the package, as HTML without scripts of its own."""

import re
import sys

import aiohttp
import pytest

from pushsdk import docs
from pushsdk.emulator import web


async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.headers, await response.text()


@pytest.mark.parametrize("name", docs.names())
def test_every_page_is_shown_with_links_to_all_pages(name):
    html = web.page(name)
    assert f'<li><a href="/docs/{name}" aria-current="page">' in html
    assert all(f'href="/docs/{other}"' in html for other in docs.names())
    assert '.md"' not in html


async def test_the_guide_is_served_under_docs_with_its_pictures(emulator):
    for path in ("/docs", "/docs/", "/docs/retries"):
        status, headers, text = await get(f"{emulator.url}{path}")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "<h1" in text
    for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", "".join(map(docs.read, docs.names()))):
        async with aiohttp.ClientSession() as session, session.get(f"{emulator.url}/docs/{name}") as response:
            assert (response.status, response.content_type) == (200, "image/png")


@pytest.mark.parametrize("path", ["/docs/nope", "/docs/..%2fREADME", "/docs/retries/more"])
async def test_an_unknown_page_is_not_found(emulator, path):
    assert (await get(f"{emulator.url}{path}"))[0] == 404


def test_headings_can_be_linked_to_and_html_is_text(monkeypatch):
    monkeypatch.setattr(docs, "read", lambda name: "# A b\n\n## C: d!\n\n<b>x</b> [r](retries.md#wait)\n")
    html = web.page("index")
    assert '<h2 id="c-d">' in html
    assert "&lt;b&gt;x" in html
    assert '<a href="/docs/retries#wait">' in html


async def test_a_search_shows_the_sections_of_the_command_with_links_to_their_headings(emulator):
    results = docs.search("retry budget")
    status, headers, html = await get(f"{emulator.url}/docs?q=retry+BUDGET")
    assert (status, "form-action 'self'" in headers["Content-Security-Policy"]) == (200, True)
    assert html.count("<li><a ") == len(results) + len(docs.names())
    assert '<a href="/docs/retries#the-retry-budget">retries: The retry budget</a>' in html
    assert '<input type="search" name="q" value="retry BUDGET"' in html
    assert "outside the retry budget, at" in html
    assert "## The retry budget" not in html
    for page, anchor in re.findall(r'<a href="/docs/([\w-]+)#([\w-]+)">', html):
        assert f'id="{anchor}"' in web.page(page)


async def test_a_search_is_text_and_has_an_end(emulator):
    _, _, html = await get(f"{emulator.url}/docs/retries?q=%3Cscript%3E%22{'x' * 200}")
    assert "<script>&quot;" not in html
    assert f"0 sections match <q>&lt;script&gt;&quot;{'x' * 91}</q>" in html
    assert "Try fewer or shorter words" in html
    _, _, html = await get(f"{emulator.url}/docs?q=e")
    assert html.count("<li><a ") == len(docs.search("e")) + len(docs.names()) > 100
    _, _, html = await get(f"{emulator.url}/docs?q=+")
    assert '<h1 id="pushsdk">' in html


async def test_only_the_guide_has_forms(emulator):
    for path in ("/", "/page.css"):
        assert "form-action 'none'" in (await get(f"{emulator.url}{path}"))[1]["Content-Security-Policy"]


def test_without_markdown_it_the_page_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    assert "<code>pip install rich</code>" in web.page("retries")
