"""``pushsdk docs``, ``help`` and ``completion``: the user guide in the terminal, and the commands."""

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pushsdk import docs as guide
from pushsdk._core.words import near_word
from pushsdk.cli.app import app
from pushsdk.cli.exit import Exit, usage_error
from pushsdk.cli.terminal import say, warn
from pushsdk.docs.search import search as find_sections

# Shells complete the choices; the command itself knows other spellings too.
_TOPIC = Parameter(show_choices=False, converter=lambda _type, tokens: tokens[0].value)
if TYPE_CHECKING:
    Topic = str
else:
    Topic = Literal[tuple(guide.names())] | str  # pydantic, if it is loaded, checks the choices

_MOST_RESULTS = 20


def docs(
    topic: Annotated[Topic, _TOPIC] = "index",
    /,
    *,
    all_pages: Annotated[bool, Parameter(name="--list")] = False,
    search: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> int:
    """Show a user guide page.

    Args:
        topic: The page name or a part of it, for example retries; with #, one section: errors#codes.
        all_pages: List the pages, each with its first sentence.
        search: Print the sections about these words, best first, each with its page and heading.
    """
    if all_pages:
        return _list_pages()
    if search is not None:
        return _print_results(" ".join(search))
    word, _, anchor = topic.lower().partition("#")
    name = _page_with(os.path.basename(word).removesuffix(".md"))
    if name is None:
        warn(f"no page has the name {topic!r}; these are the sections about it, --list lists the pages")
        return _print_results(topic)
    text = guide.read(name)
    if anchor:
        text = _section_of(name, guide.sections(text), guide.anchor(anchor))
    if sys.stdout.isatty():
        _show(text)
    else:
        sys.stdout.write(text)
    return Exit.DONE


def _list_pages() -> int:
    pages = guide.names()
    width = max(map(len, pages))
    for page in pages:
        say(f"{page:{width}}  {guide.summary(guide.read(page))}")
    return Exit.DONE


def _print_results(search: str) -> int:
    results = find_sections(search)
    for result in results[:_MOST_RESULTS]:
        say(textwrap.shorten(": ".join(result), 120, placeholder=" ..."))
    if len(results) > _MOST_RESULTS:
        say(f"... and {len(results) - _MOST_RESULTS:,} more; another word narrows the search")
    if results:
        return Exit.DONE
    warn(f"no page contains {search!r}; pushsdk docs --list lists the pages")
    return Exit.INCOMPLETE


def _page_with(word: str) -> str | None:
    """Return the page with this name, or else the one page whose name contains the word or is nearly the word."""
    pages = guide.names()
    close = [word] if word in pages else [page for page in pages if word in page]
    return close[0] if len(close) == 1 else near_word(word, pages, 0.75)


def _section_of(page: str, sections: dict[str, str], anchor: str) -> str:
    """Return the section with this anchor; rejected-429 and others share one. Raises a usage error."""
    pattern = re.sub(r"\d{3}$", r"\\d{3}.*", re.escape(anchor))
    for name, text in sections.items():
        if re.fullmatch(pattern, name):
            return text
    near = near_word(anchor, sections, 0.6)
    advice = f"Did you mean '{page}#{near}'?" if near else f"It has: {', '.join(sections)}"
    raise usage_error(f"{page} has no section {anchor!r}. {advice}")


def _show(page: str) -> None:
    from rich.console import Console  # imported late: a pipe does not need rich
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "FRX")  # as git does: less passes styles through, and ends if the page fits
    console = Console()
    with console.pager(styles=True):
        console.print(
            Markdown(re.sub(r"\]\(([\w-]+)\.md[^)]*\)", r"](\1)", page), hyperlinks=False),
            width=min(console.width, 100),
        )


def help(*command: str) -> int:  # noqa: A001 - the command's name
    _, apps, unknown = app.parse_commands(command)
    if unknown:
        near = near_word(unknown[0], apps[-1], 0.6)
        advice = f"Did you mean {near!r}?" if near else "pushsdk --help lists the commands"
        raise usage_error(f"no command has the name {' '.join(command)!r}. {advice}")
    app.help_print(command)
    return Exit.DONE


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion script for a shell.

    Args:
        shell: The shell. Save the script where the shell loads completions, for example ~/.zfunc/_pushsdk.
    """
    # zsh calls the function named like the file.
    sys.stdout.write(app.generate_completion(shell=shell).replace("_cyclopts_pushsdk", "_pushsdk"))
    return Exit.DONE
