#!/usr/bin/env python3
"""Write pushsdk/docs/reference.md from the signatures and docstrings of the public names.

    python .ci/reference.py           write the page
    python .ci/reference.py --check   exit with 1 if the page is stale

Reads the sources and imports none of them, so any Python 3.11 will do. Run it in the top folder of the clone.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path("pushsdk/docs/reference.md")
HEAD = """\
# Reference

Every public name: its signature, its meaning, and what it raises. Written by `.ci/reference.py` from the docstrings.
Durations are in seconds. Import a name from the module in the heading above it, or from `pushsdk` if there is none.
"""
# Subjects in order: the modules whose public names they hold, as prefixes. The first prefix that matches decides.
SUBJECTS = {
    "Clients": ("pushsdk.client", "pushsdk.sync"),
    "Settings": ("pushsdk._core.policy",),
    "Messages and campaigns": ("pushsdk._core.models", "pushsdk._core.placeholders", "pushsdk._core.lint"),
    "Outcomes and results": ("pushsdk._core.outcome", "pushsdk._core.results"),
    "Errors": ("pushsdk._core.errors",),
    "Events": ("pushsdk._core.events",),
    "Broadcasts": ("pushsdk._runs", "pushsdk._core.stop_policy", "pushsdk._audience"),
    "Options of clients and runs: pushsdk.options": ("pushsdk.options",),
    "Claim stores: pushsdk.claims": ("pushsdk.claims",),
    "Arrow: pushsdk.arrow": ("pushsdk.arrow",),
    "Spark: pushsdk.spark": ("pushsdk.spark",),
    "OpenTelemetry: pushsdk.otel": ("pushsdk.otel",),
    "Tests: pushsdk.testing": ("pushsdk.testing",),
    "The emulator: pushsdk.emulator": ("pushsdk.emulator",),
    "More names": ("pushsdk",),
}
PACKAGES = ("", ".options", ".claims", ".arrow", ".spark", ".otel", ".testing", ".emulator")
SECTION = re.compile(r"(Args|Returns|Yields|Raises|Example|Examples):$")
WIDTH = 100

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_of(module: str) -> ast.Module:
    path = Path(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


def bound(module: str) -> Iterator[str]:
    """Yield the names that a star import of a module binds, as far as its own statements and imports show."""
    for node in source_of(module).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def exports(module: str) -> dict[str, str]:
    """Return the names in ``__all__`` of a package, each with the module that defines it."""
    tree = source_of(module)
    origins = {
        name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        for name in (bound(node.module) if alias.name == "*" else [alias.name])
    }
    # The parts of an __all__ that is added up.
    nodes = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AugAssign))]
    lists = [node.value for node in nodes if ast.unparse(node).startswith("__all__ ")]
    return {name: origins.get(name, module) for value in lists for name in ast.literal_eval(value)}


def markdown(text: str) -> list[str]:
    """Return the lines of a docstring as Markdown: literals, and each section as a list or a block of code."""
    lines: list[str] = []
    section = ""
    for line in text.replace("``", "`").splitlines():
        if match := SECTION.match(line):
            section = match[1]
            lines += [f"{section}:", ""] + (["```py"] if section.startswith("Example") else [])
        elif section.startswith("Example") and line and not line.startswith(" "):
            lines += [*end_of_example(lines), line]
            section = ""
        elif section.startswith("Example"):
            lines.append(line[4:])
        elif section and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            listed = colon and " " not in name
            lines.append(f"- `{name.lstrip('*')}`: {rest}" if listed else line.strip())
        elif section and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            section = section if not line else ""
            lines.append(line)
    return end_of_example(lines) if section.startswith("Example") else lines


def end_of_example(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return [*lines, "```", ""]


def documentation(node: ast.AST) -> str:
    return ast.get_docstring(node) or ""  # type: ignore[arg-type]


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """Return the classes of all modules by name."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in Path("pushsdk").rglob("*.py"))
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


@functools.cache
def public() -> frozenset[str]:
    return frozenset(name for package in PACKAGES for name in exports(f"pushsdk{package}"))


def mixins(node: ast.ClassDef) -> list[ast.ClassDef]:
    """Return the bases that the reader can't look up, as they are not public."""
    found = [classes()[base] for base in bases(node) if base in classes() and base not in public()]
    return [each for base in found for each in (base, *mixins(base))]


@functools.cache
def kinds() -> dict[str, str]:
    """Return the type of each kind of values by its name, without its rule."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in Path("pushsdk").rglob("*.py"))
    aliases = [node for tree in trees for node in tree.body if isinstance(node, ast.Assign)]
    rules = [
        (ast.unparse(node.targets[0]), re.match(r"Annotated\[([\w.]+(?:\[[^]]*\])?), ", ast.unparse(node.value)))
        for node in aliases
    ]
    return {name: rule[1] for name, rule in rules if rule}


def type_of(annotation: ast.expr) -> str:
    """Return an annotation with types in place of kinds."""
    return re.sub(r"\w+", lambda name: kinds().get(name[0], name[0]), ast.unparse(annotation))


# The sentences about the fields in the docstring of a class.
ATTRIBUTES = re.compile(r"\n\nAttributes:((?:\n    .*)*)")


def fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield each public field of a class body as ``name: type = default``, with its sentence.

    The sentence is in the class docstring, for a class that users construct, or below the field.
    """
    listed = dict(re.findall(r"(?m)^    (\w+): (.*(?:\n {8}.*)*)", "".join(ATTRIBUTES.findall(documentation(node)))))
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            name = ast.unparse(statement.target)
            field = f"{name}: {type_of(statement.annotation)}"
            if statement.value is not None:
                field += f" = {shown(statement.value)}"
        elif isinstance(statement, ast.Assign) and is_enum(node):
            name, field = ast.unparse(statement.targets[0]), ast.unparse(statement)
        else:
            continue
        if not name.startswith("_"):
            value = following.value if isinstance(following, ast.Expr) else None
            below = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            text = listed.get(name, below)
            yield field, " ".join(text.replace("``", "`").split())


def is_documented(constructor: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> bool:
    """Return True if the constructor has a docstring, or its class describes a parameter."""
    names = [argument.arg for argument in (*constructor.args.args, *constructor.args.kwonlyargs)]
    return bool(documentation(constructor)) or any(f"``{name}``" in text for name in names)


def bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base) for base in node.bases]


def is_enum(node: ast.ClassDef) -> bool:
    return any(base.endswith("Enum") for base in bases(node))


def signature(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, *, returns: bool = True) -> str:
    """Return a call as it is declared, without ``self``, on one line or with a line per parameter."""
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in ("self", "cls"):
            del group[0]
            break
    result = f" -> {ast.unparse(node.returns)}" if returns and node.returns is not None else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    parts = list(parameters(arguments))
    line = f"{prefix}{name}({', '.join(parts)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def parameters(arguments: ast.arguments) -> Iterator[str]:
    ordinary = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(ordinary) - len(arguments.defaults)) + arguments.defaults
    for position, (argument, default) in enumerate(zip(ordinary, defaults, strict=True), 1):
        yield parameter(argument, default)
        if position == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield parameter(argument, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else f": {type_of(argument.annotation)}"
    return f"{argument.arg}{kind}" + ("" if default is None else f" = {shown(default)}")


def shown(default: ast.expr) -> str:
    """Return a default as in the source, or the value of the constant that it names."""
    text = ast.unparse(default)
    values = constants().get(text, {text})
    if len(values) > 1:
        sys.exit(f"a default must name a constant that one module defines; {text} is one of {values}: rename one")
    return min(values)


@functools.cache
def constants() -> dict[str, set[str]]:
    """Return the values of the constants that are literals in any module, by name."""
    assignments = [
        (ast.unparse(target), node.value)
        for path in Path("pushsdk").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    values: dict[str, set[str]] = {}
    for name, value in assignments:
        if name.isupper() and isinstance(value, (ast.Constant, ast.BinOp)):
            values.setdefault(name, set()).add(ast.unparse(value))
    return values


@functools.cache
def aliases() -> dict[str, str]:
    """Return the types that the page shows instead of their names in the source."""
    assignments = [node for node in ast.walk(source_of("pushsdk._core.models")) if isinstance(node, ast.Assign)]
    values = [(ast.unparse(node.targets[0]), ast.unparse(node.value)) for node in assignments]
    documented = {name: value for name, value in values if value.startswith("Literal[") or " | " in value}
    documented |= {"AnyPath": "str | os.PathLike[str]", "CollectionNotStr": "Collection[str]"}
    return {**documented, r"UntypedMapping\[\w+\]": "Mapping[str, Any]"}


def described(name: str, node: Definition) -> Iterator[str]:
    """Yield the lines of a class or a function, without its heading."""
    if not isinstance(node, ast.ClassDef):
        yield from ["```py", signature(name, node), "```", "", *markdown(documentation(node)), ""]
        return
    body = [item for part in (node, *mixins(node)) for item in part.body]
    methods = [item for item in body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    # A class's method comes before that of a mixin, which it overrides.
    used = {item.name: item for item in reversed(methods)}
    constructor = next((item for item in methods if item.name == "__init__" and item in node.body), None)
    is_error = name.endswith("Error")
    called = constructor is not None and not is_error and is_documented(constructor, documentation(node))
    own_bases = [base for base in bases(node) if base in public() or base in ("Exception", "StrEnum", "ValueError")]
    if constructor is not None and called:
        yield from ["```py", signature(name, constructor, returns=False), "```", ""]
    elif own_bases:
        yield from [f"A subclass of {', '.join(f'`{base}`' for base in own_bases)}.", ""]
    yield from [*markdown(ATTRIBUTES.sub("", documentation(node))), ""]
    if constructor is not None and called:
        yield from [*markdown(documentation(constructor)), ""]
    members: dict[str, tuple[str, str]] = {}
    for part in (node, *mixins(node)):
        for field, text in fields(part):
            # The struct beside a dict describes the fields of both.
            members.setdefault(field.partition(":")[0], (field, "" if name.endswith("Dict") else text))
    yield from (f"- `{field}`{': ' if text else ''}{text}" for field, text in members.values())
    if members:
        yield ""
    for method in methods:
        if method.name.startswith("_") or not documentation(method) or used[method.name] is not method:
            continue
        decorators = [ast.unparse(item) for item in method.decorator_list]
        if any("property" in item for item in decorators):
            result = f": {ast.unparse(method.returns)}" if method.returns else ""
            yield from [f"#### {name}.{method.name}", "", "```py", f"{method.name}{result}", "```", ""]
        else:
            yield from [f"#### {name}.{method.name}", "", "```py", signature(method.name, method), "```", ""]
        yield from [*markdown(documentation(method)), ""]


def page() -> str:
    sections: dict[str, list[str]] = {subject: [] for subject in SUBJECTS}
    for package in PACKAGES:
        origins = exports(f"pushsdk{package}")
        for module in dict.fromkeys(sorted(origins.values(), key=list(SUBJECTS).__contains__)):
            subject = next(
                subject
                for subject, prefixes in SUBJECTS.items()
                if any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)
            )
            for node in source_of(module).body:
                name = getattr(node, "name", None)
                if origins.get(name) == module and documentation(node):
                    sections[subject] += [f"### {name}", "", *described(name, node)]
    lines = [HEAD, ""]
    for subject, content in sections.items():
        if content:
            lines += [f"## {subject}", "", *content]
    text = "\n".join(line.rstrip() for line in lines)
    for name, meaning in aliases().items():
        text = re.sub(rf"\b{name}(?!\w)", meaning, text)
    text = re.sub(r"\bAnnotated\[(\w+), \w+\]", r"\1", text)
    text = re.sub(r"(->|\w:) '([\w.|\[\], ]+)'", r"\1 \2", text)  # types of names that are defined below
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


if sys.argv[1:] == ["--check"]:
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()
    sys.exit(f"{PAGE} is stale: run python .ci/reference.py" if stale else 0)
PAGE.write_text(page(), encoding="utf-8")
