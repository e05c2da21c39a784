"""The user guide as pages of HTML, for ``/docs``."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise
from string import Template

from pushsdk import docs

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$name - pushsdk</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page.css"><link rel="stylesheet" href="/guide.css">
<script src="/theme.js"></script>
</head>
<body class="guide">
<a class="skip" href="#main">Skip to content</a>
<header class="top"><p class="brand"><a href="/"><img src="/icon.svg" alt="" width="28" height="28">
<span><b>pushsdk</b> <small>back to the inbox</small></span></a></p></header>
<nav aria-label="Pages"><ul>$links</ul></nav>
<main id="main" tabindex="-1">$body</main>
</body>
</html>
""")
_MISSING = (
    "<h1>The guide</h1><p>To read the guide here, install markdown-it-py: <code>pip install 'pushsdk[cli]'</code></p>"
)


def page(name: str) -> str | None:
    """Return a page of the guide as HTML; None if no page has this name."""
    names = sorted(docs.names(), key="index".__ne__)
    if name not in names:
        return None
    current = ' aria-current="page"'
    links = "".join(f'<li><a href="/docs/{each}"{current * (each == name)}>{escape(each)}</a></li>' for each in names)
    return _PAGE.substitute(name=escape(name), links=links, body=_html(docs.read(name)))


def _html(markdown: str) -> str:
    try:
        from markdown_it import MarkdownIt  # imported late: only the extra cli has it
    except ImportError:
        return _MISSING
    tokens = (reader := MarkdownIt("commonmark", {"html": False}).enable("table")).parse(markdown)
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", re.sub(r"[^a-z0-9]+", "-", text.content.lower()).strip("-"))
    html = str(reader.renderer.render(tokens, reader.options, {}))
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<table>", '<div class="scroll-x" tabindex="0"><table>')
    return re.sub(r'href="([\w-]+)\.md', r'href="/docs/\1', html.replace("</table>", "</table></div>"))
