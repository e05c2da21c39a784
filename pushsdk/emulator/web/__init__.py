"""The page: the static files beside this module, the guide as HTML under ``/docs``, and their responses."""

import re
from functools import cached_property
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template

from aiohttp import web

from pushsdk import docs
from pushsdk.docs.search import search
from pushsdk.emulator.guard import Guard, Refused
from pushsdk.emulator.http_io import PRIVATE, refuse

_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; connect-src 'self'; "
    "base-uri 'none'; form-action {forms}; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_HEADERS |= dict.fromkeys(("Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy"), "same-origin")
_PAGE = Template(Path(__file__).with_name("guide.html.template").read_text(encoding="utf-8"))
_MISSING = "<h1>The guide</h1><p>It needs rich (the extra 'cli'): <code>pip install rich</code></p>"


class Pages:
    """Serves ``/``, its files, and the guide under ``/docs``.

    With ``?images=1`` the page may load pictures from other sites.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @cached_property
    def _files(self) -> dict[str, tuple[bytes, str]]:
        """Content and type of each file by name. The path of a request never reaches the file system."""
        return {
            f"{folder}{file.name}": (file.read_bytes(), _TYPES[suffix])
            for folder, package in (("", __name__), ("docs/", "pushsdk.docs"))
            for file in files(package).iterdir()
            if (suffix := file.name.rpartition(".")[2]) in _TYPES
        }

    def respond(self, request: web.BaseRequest) -> web.Response | None:
        """Return a page file or a refusal; None for a request that no browser sends to open a page."""
        if request.method not in {"GET", "HEAD"}:
            return None
        name = request.path.removeprefix("/") or "index.html"
        is_guide = name.partition("/")[0] == "docs"
        try:
            self._guard.check_origin(request.headers)
            body, kind = self._files.get(name) or _guide(name, request.query.get("q", ""))
        except Refused as refused:
            return refuse(refused, PRIVATE)
        images = " https: http:" if request.query.get("images") == "1" else ""
        policy = _POLICY.format(images=images, forms="'self'" if is_guide else "'none'")
        headers = {**_HEADERS, "Content-Security-Policy": policy}
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)


def _guide(name: str, query: str) -> tuple[bytes, str]:
    """Return content and type of a guide page. Raises `Refused` if there is none."""
    section, _, topic = name.partition("/")
    html = page(topic or "index", query) if section == "docs" else None
    if html is None:
        raise Refused(404, "no such page; the inbox is at /")
    return html.encode(), "text/html"


def page(name: str, query: str = "") -> str | None:
    """Return a guide page as HTML, or the sections with the query's words; None if no page has this name."""
    names = sorted(docs.names(), key="index".__ne__)
    if name not in names:
        return None
    current = "" if (query := query.strip()[:100]) else name
    mark = ' aria-current="page"'
    links = "".join(f'<li><a href="/docs/{each}"{mark * (each == current)}>{escape(each)}</a></li>' for each in names)
    body = _results(query) if query else _html(docs.read(name))
    return _PAGE.substitute(name=escape(current or "search"), links=links, body=body, query=escape(query))


def _results(query: str) -> str:
    """Return the sections that ``pushsdk docs --search`` prints, each below a link to its heading."""
    results = search(query)
    items = "".join(
        f'<li><a href="/docs/{name}#{_anchor(heading)}">{name}: {escape(heading)}</a><p>{escape(text)}</p></li>'
        for name, heading, text in results
    )
    matches = "1 section matches" if len(results) == 1 else f"{len(results)} sections match"
    head = f"<h1>Search</h1><p>{matches} <q>{escape(query)}</q>, best first.</p>"
    return f'{head}<ul class="results">{items}</ul>' if items else f"{head}<p>Try fewer or shorter words.</p>"


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def _html(markdown: str) -> str:
    try:
        from markdown_it import MarkdownIt  # imported late: only the extra cli has it
    except ImportError:
        return _MISSING
    tokens = (reader := MarkdownIt("commonmark", {"html": False}).enable("table")).parse(markdown)
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(text.content))
    html = str(reader.renderer.render(tokens, reader.options, {}))
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<table>", '<div class="scroll-x" tabindex="0"><table>')
    return re.sub(r'href="([\w-]+)\.md', r'href="/docs/\1', html.replace("</table>", "</table></div>"))
