"""The guide's pages as HTML: navigation, colored code, search results. ``guide.js`` adds the rest."""

import re
from html import escape
from itertools import pairwise
from string import Template

from pushsdk import docs
from pushsdk._texts import text_beside
from pushsdk.docs.search import search

_PAGE = Template(text_beside(__name__, "guide.html.template"))
_MISSING = "<h1>The guide</h1><p>It needs rich (the extra 'cli'): <code>pip install rich</code></p>"
_MAX_QUERY = 100
_IN_BACKTICKS, _AS_CODE = re.compile("`([^`]+)`"), r"<code>\1</code>"


def page(name: str, query: str = "") -> str | None:
    """Return a guide page as HTML, or the sections about the query's words; None if no page has this name."""
    groups = {"Start": [("index", "Overview")], **docs.groups()}
    titles = {each: title for pages in groups.values() for each, title in pages}
    if name not in titles:
        return None
    current = "" if (query := query.strip()[:_MAX_QUERY]) else name
    mark = ' aria-current="page"'
    nav = ""
    for group, pages in groups.items():
        links = (
            f'<li><a href="/docs/{each}"{mark * (each == current)}>{escape(text)}</a></li>' for each, text in pages
        )
        nav += f"<h2>{escape(group)}</h2><ul>{''.join(links)}</ul>"
    body = _results(query, titles) if query else _html(docs.read(name))
    return _PAGE.substitute(title=escape(titles.get(current, "Search")), nav=nav, body=body, query=escape(query))


def _results(query: str, titles: dict[str, str]) -> str:
    """Return the sections that ``pushsdk docs --search`` prints, each below a link to its heading."""
    items = [
        f'<li><a href="/docs/{name}#{docs.anchor(heading)}">'
        f"{escape(': '.join(dict.fromkeys((titles[name], heading))))}</a>"
        f"<p>{_IN_BACKTICKS.sub(_AS_CODE, escape(text))}</p></li>"
        for name, heading, text in search(query)
    ]
    head = f"<h1>Search</h1><p>{len(items)} sections about <q>{escape(query)}</q>, best first.</p>"
    return f'{head}<ul class="results">{"".join(items)}</ul>' if items else f"{head}<p>Try fewer or shorter words.</p>"


def _html(markdown: str) -> str:
    try:
        from markdown_it import MarkdownIt  # imported late: only the extra cli has these
        from pygments import formatters, highlight, lexers, util
    except ImportError:
        return _MISSING

    def color(code: str, language: str, _attributes: str) -> str:
        try:
            lexer = lexers.get_lexer_by_name(language)
        except util.ClassNotFound:
            return ""  # shown without colors
        return str(highlight(code, lexer, formatters.HtmlFormatter(nowrap=True)))

    tokens = (reader := MarkdownIt("commonmark", {"html": False, "highlight": color}).enable("table")).parse(markdown)
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", docs.anchor(text.content))
    html = str(reader.renderer.render(tokens, reader.options, {}))
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<table>", '<div class="scroll-x" tabindex="0"><table>')
    return re.sub(r'href="([\w-]+)\.md', r'href="/docs/\1', html.replace("</table>", "</table></div>"))
