"""README and the pages of the user guide, as the tests read them."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from pushsdk import AsyncPushClient, MobilePush
from pushsdk.testing import VirtualLoop

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "pushsdk" / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of code."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.document}:{self.line}"

    @property
    def source(self):
        """The text after as many line ends as give its errors the line numbers of the document."""
        return "\n" * (self.line - 1) + self.text

    @property
    def module(self):
        """The file name in the first line of a module, which a dedicated test runs with its framework."""
        name = re.match(r"# ([\w/]+\.py)\n", self.text)
        return name[1] if name else None


class Document(NamedTuple):
    """README or a page of the guide."""

    name: str
    path: Path
    text: str

    def __str__(self):
        return self.name

    @property
    def blocks(self):
        return [
            Block(self.name, self.text[: match.start(2)].count("\n") + 1, match[1], match[2])
            for match in BLOCK.finditer(self.text)
        ]

    @property
    def headings(self):
        return re.findall(r"^#+ (.+)$", BLOCK.sub("", self.text), re.MULTILINE)

    def section(self, title):
        """Return the text below a heading of the second level."""
        return self.text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]

    def table(self, first):
        """Return the rows of the table that begins with this cell."""
        for match in re.finditer(r"(?:^\|.*\|\n)+", self.text, re.MULTILINE):
            head, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in match[0].splitlines())
            if head[0] == first:
                return rows
        raise AssertionError(f"{self.name} has no table that begins with {first!r}")


def page(name):
    """Return a page of the guide."""
    path = GUIDE / f"{name}.md"
    return Document(path.name, path, path.read_text())


README = Document("README.md", ROOT / "README.md", (ROOT / "README.md").read_text())
DOCUMENTS = [README, *(page(path.stem) for path in sorted(GUIDE.glob("*.md")))]
#: The modules that dedicated tests run, by file name.
MODULES = {block.module: block.text for document in DOCUMENTS for block in document.blocks if block.module}


def module(name):
    """Run a module of the guide, and return its names."""
    names = {"__name__": name}
    exec(compile(MODULES[f"{name}.py"], name, "exec"), names)
    return names


def run(block, service=None):
    """Run an example. If it awaits at top level, it gets a ``message`` and a ``client``.

    That of a fake service runs in virtual time.
    """
    message = MobilePush(title={"en": "Hello"}, ios_enabled=True, android_enabled=True)
    names = {"__name__": "__main__", "message": message}
    code = compile(block.source, block.document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return names

    async def awaited():
        async with service.client() if service else AsyncPushClient() as names["client"]:
            example = eval(code, names)
            await example

    with asyncio.Runner(loop_factory=VirtualLoop if service else None) as runner:
        runner.run(awaited())
    return names


def calm(text):
    """Return a program whose requests wait as long as a call may: a busy machine is slow to kill it meanwhile."""
    text = text.replace("import MobilePush, ", "import MobilePush, Timeout, ")
    return text.replace("PushClient(", "PushClient(timeout=Timeout(attempt=28), ")


def is_shown(line, output):
    """Return True if the output has this line; ``...`` in the line stands for any text."""
    pattern = ".*".join(map(re.escape, line.split("...")))
    return any(re.fullmatch(pattern, real.strip()) for real in output.splitlines())


def run_in_shell(command):
    """Run commands with this Python's programs, at home in this folder, and return the exit code and the output."""
    prelude = f"exec 2>&1\nexport PATH={Path(sys.executable).parent}:$PATH HOME=$PWD\n"
    shell = subprocess.run(
        ["bash", "-c", prelude + command], stdout=subprocess.PIPE, text=True, timeout=900, check=False
    )
    return shell.returncode, shell.stdout


def check_shown(blocks, changes):
    """Run every other block, with these changes, and check that the blocks between show lines of the output."""
    commands = "".join(block.text for block in blocks[::2])
    for usual, other in changes.items():
        commands = commands.replace(usual, f"{other}")
    _, output = run_in_shell(commands)
    shown = "".join(block.text for block in blocks[1::2]).splitlines()
    assert [line for line in shown if not is_shown(line, output)] == [], output
