"""The guide under ``/docs``: every page of the package, as HTML without scripts of its own."""

import re
import sys

import pytest
from support.control_api import Api

from pushsdk import docs
from pushsdk.docs.search import search
from pushsdk.emulator.web.guide import page


@pytest.fixture
def get(emulator):
    """``await get(path)``: the status, content type, policy and text of a page."""

    async def ask(path):
        answer = await Api(emulator, Api_Key=None).raw("GET", path)
        policy = answer.headers["content-security-policy"]
        return answer.status, answer.headers["content-type"], policy, answer.body.decode(errors="replace")

    return ask


def test_every_page_has_links_to_all_pages():
    for name in docs.names():
        html = page(name)
        assert f'<li><a href="/docs/{name}" aria-current="page">' in html
        assert all(f'href="/docs/{other}"' in html for other in docs.names())
        assert '.md"' not in html


async def test_the_guide_is_served_under_docs_with_its_pictures(get):
    for path in ("/docs", "/docs/", "/docs/retries"):
        status, kind, policy, text = await get(path)
        assert status == 200
        assert kind == "text/html; charset=utf-8"
        assert "script-src 'self'" in policy
        assert "<h1" in text
    for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", "".join(map(docs.read, docs.names()))):
        assert (await get(f"/docs/{name}"))[:2] == (200, "image/png; charset=utf-8")
    for path in ("/docs/nope", "/docs/..%2fREADME", "/docs/retries/more"):
        assert (await get(path))[0] == 404


async def test_a_search_shows_the_sections_of_the_command_with_links_to_their_headings(get):
    results = search("retry budget")
    _, _, policy, html = await get("/docs?q=retry+BUDGET")
    assert "form-action 'self'" in policy
    assert html.count("<li><a ") == len(results) + len(docs.names())
    assert '<a href="/docs/retries#the-retry-budget">Retries: The retry budget</a>' in html
    assert '<input type="search" name="q" value="retry BUDGET"' in html
    for name, anchor in re.findall(r'<a href="/docs/([\w-]+)#([\w-]+)">', html)[:5]:
        assert f'id="{anchor}"' in page(name)


async def test_a_search_is_text_and_has_an_end(get):
    html = (await get(f"/docs/retries?q=%3Cnokia%3E%22{'x' * 200}"))[3]
    assert "<nokia>&quot;" not in html
    assert f"0 sections about <q>&lt;nokia&gt;&quot;{'x' * 92}</q>" in html
    assert "Try fewer or shorter words" in html
    assert '<h1 id="pushsdk">' in (await get("/docs?q=+"))[3]


def test_without_markdown_it_the_page_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    assert "<code>pip install rich</code>" in page("retries")
