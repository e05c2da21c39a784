"""The user guide as pages of HTML, for ``/docs``."""

import re
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template

from pushsdk import docs

_PAGE = Template(Path(__file__).with_name("guide.html.template").read_text(encoding="utf-8"))
_MISSING = "<h1>The guide</h1><p>It needs rich (the extra 'cli'): <code>pip install rich</code></p>"


def page(name: str, query: str = "") -> str | None:
    """Return a page of the guide as HTML, or the sections with the words of a query; None if no page has this name."""
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
    results = docs.search(query)
    items = "".join(
        f'<li><a href="/docs/{name}#{_anchor(heading)}">{name}: {escape(heading)}</a><p>{escape(text)}</p></li>'
        for name, heading, text in results
    )
    head = f"<h1>Search</h1><p>Sections with all words of <q>{escape(query)}</q>: {len(results)}, the best first.</p>"
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
