"""Count what a reader of the code meets, and fail if a figure is above its bound, or far enough below to lower it.

Tokens are counted, not lines, so that packing gains nothing. The decisions of a function are its conditions, loops,
handlers and cases, conditional expressions, comprehensions with their conditions, and each further operand of `and`
or `or`. A nested function counts for itself. Run it in the top folder of the clone.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Lower a bound when its figure falls. Only a new feature raises the first two.
BOUNDS = {
    "tokens of pushsdk": 181_561,
    "tokens of tests": 269_750,
    "functions with more than 8 decisions, per 1,000": 11.5,
    "functions with more than 15 decisions": 0,
    "classes with more than 15 attributes": 0,
    "modules in the longest chain of imports": 15,
    "'of' per 1,000 words of docstrings and comments": 10.0,
    "'own' per 1,000 words of docstrings and comments": 0.42,
    "'what' per 1,000 words of docstrings and comments": 0.785,
}
SLACK = 0.03  # of a bound: how far a figure may fall before its bound must follow

BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Module:
    """A parsed file."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(text)
        self.nodes = list(ast.walk(self.tree))
        self.tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))

    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Yield the first line and the text of each docstring."""
        for node in self.nodes:
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and (text := ast.get_docstring(node)):
                yield node.body[0].lineno, text

    def size(self) -> int:
        """Return the number of tokens, without comments and docstrings."""
        lines = {line for line, _ in self.docstrings()}
        docstrings = [token for token in self.tokens if token.type == tokenize.STRING and token.start[0] in lines]
        return sum(token.type not in LAYOUT for token in self.tokens) - len(docstrings)

    def words(self) -> Iterator[str]:
        """Yield the words of docstrings and comments."""
        comments = [token.string for token in self.tokens if token.type == tokenize.COMMENT]
        for text in [*comments, *(text for _, text in self.docstrings())]:
            yield from re.findall(r"[a-z']+", text.lower())

    def imports(self, known: set[str]) -> set[str]:
        """Return the modules of the package that this one imports when it is loaded."""
        names = set()
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                paths = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= paths & known or {node.module} & known
        return names - {self.name}


def decisions(node: ast.AST) -> int:
    """Return the decisions below a node, without those of nested functions."""
    total = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            continue
        total += isinstance(child, BRANCHES) + decisions(child)
        if isinstance(child, ast.BoolOp):
            total += len(child.values) - 1
        elif isinstance(child, ast.comprehension):
            total += 1 + len(child.ifs)
    return total


def attributes(node: ast.ClassDef) -> int:
    """Return the number of attributes that a class sets or declares; 0 for values, enums and dictionaries."""
    bases = " ".join(map(ast.unparse, node.bases))
    if {"frozen", "total"} & {keyword.arg for keyword in node.keywords} or re.search("Dict|Enum|Model", bases):
        return 0
    stored = [part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)]
    names = {part.attr for part in stored if isinstance(part.value, ast.Name) and part.value.id == "self"}
    declared = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
    return len(names | {target.id for target in declared if isinstance(target, ast.Name)})


def longest_chain(modules: list[Module]) -> int:
    """Return the number of modules in the longest chain of imports."""
    known = {module.name for module in modules}
    imported = {module.name: module.imports(known) for module in modules}

    @cache
    def depth(name: str) -> int:
        return 1 + max(map(depth, imported[name]), default=0)

    return max(map(depth, known))


def measure() -> dict[str, float]:
    """Return the figures, under the names of their bounds."""
    package = [Module(path) for path in sorted(Path("pushsdk").rglob("*.py"))]
    tests = [Module(path) for path in sorted(Path("tests").rglob("*.py"))]
    nodes = [node for module in package for node in module.nodes]
    found = [1 + decisions(node) for node in nodes if isinstance(node, FUNCTIONS)]
    words = Counter(word for module in package for word in module.words())
    figures = [
        sum(module.size() for module in package),
        sum(module.size() for module in tests),
        1000 * sum(number > 8 for number in found) / len(found),
        sum(number > 15 for number in found),
        sum(attributes(node) > 15 for node in nodes if isinstance(node, ast.ClassDef)),
        longest_chain(package),
        *(1000 * words[word] / words.total() for word in ("of", "own", "what")),
    ]
    return dict(zip(BOUNDS, figures, strict=True))


def verdict(figure: float, bound: float) -> str:
    """Return what is wrong with a figure, or ``""``."""
    if figure > bound:
        return ": above its bound"
    return ": lower the bound" if figure < bound * (1 - SLACK) else ""


rows = [(name, figure, BOUNDS[name], verdict(figure, BOUNDS[name])) for name, figure in measure().items()]
sys.stdout.writelines(f"{figure:>10,.2f} {bound:>10,.2f}  {name}{wrong}\n" for name, figure, bound, wrong in rows)
sys.exit(any(wrong for *_, wrong in rows))
