"""A new public name of ``pushsdk.testing`` brings its documentation, its typing test and its changelog line."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from pushsdk import testing

ROOT = Path(testing.__file__).parents[2]
NAMES = testing.__all__


def test_all_is_sorted_and_complete() -> None:
    assert sorted(NAMES, key=lambda name: (name[0].islower(), name)) == NAMES
    assert dir(testing) == NAMES
    assert all(hasattr(testing, name) for name in NAMES)


def test_the_imports_for_type_checkers_match_the_lazy_imports() -> None:
    tree = ast.parse(Path(testing.__file__).read_text())
    imported = {
        name.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert imported.keys() == {*NAMES, "TYPE_CHECKING"}
    for name in NAMES:
        module = importlib.import_module(str(imported[name]))
        assert getattr(module, name) is getattr(testing, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'pushsdk\.testing' has no attribute 'nothing'"):
        _ = testing.nothing


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    public = getattr(testing, name)
    assert public.__doc__
    own = {name: member for name, member in vars(public).items() if not name.startswith("_")}
    members = [
        name
        for name, member in own.items()
        if inspect.isroutine(member) or isinstance(member, (property, staticmethod))
    ]
    assert [member for member in members if not inspect.getdoc(getattr(public, member))] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_used_in_the_typing_test(name: str) -> None:
    _, _, text = (ROOT / "tests" / "typing" / "api.py").read_text().partition("from pushsdk.testing import (")
    imported, _, used = text.partition(")\n")
    assert re.search(rf"\b{name}\b", imported)
    assert re.search(rf"\b{name}\b", used)


@pytest.mark.parametrize("name", [*(f"pushsdk.testing.{name}" for name in NAMES), "push", "push_env", "push_emulator"])
def test_every_public_name_and_fixture_has_one_line_in_the_changelog(name: str) -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert len([line for line in lines if re.match(rf"- (`[^`]+`, )*`{re.escape(name)}`[^:]*: \S", line)]) == 1
