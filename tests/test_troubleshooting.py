"""The texts in the guide's page on troubleshooting are texts of the code."""

import ast
import re

import pytest
from support.docs import ROOT, page

QUOTED = [
    line for block in page("troubleshooting").blocks if block.language == "text" for line in block.text.splitlines()
]


def show(node: ast.AST) -> str:
    """Return the text of a string in the source, without its variable parts."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(show, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "\n"


def texts() -> set[str]:
    nodes = [
        node
        for path in (ROOT / "pushsdk").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.JoinedStr, ast.Constant))
    ]
    return {show(node) for node in nodes}


TEXTS = "\n".join(texts())
# The end of a text that another one leads in, the name of a setting, and a status.
JOINT = re.compile(r"^(?:base_url|api_key) |(?:not sent|outcome unknown|rejected|not retried): |HTTP \d+|\.\.\.")


@pytest.mark.parametrize("line", QUOTED)
def test_a_quoted_text_is_in_the_code(line: str) -> None:
    assert [part for part in JOINT.split(line) if part.strip() not in TEXTS] == []
    assert [joint for joint in JOINT.findall(line) if joint[0].islower() and joint.strip() not in TEXTS] == []
