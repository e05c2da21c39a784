"""The texts in the guide's page on troubleshooting are texts of the code."""

import ast
import re

from support.docs import ROOT, page

# The end of a text that another one leads in, the name of a setting, and a status.
JOINT = re.compile(r"^(?:base_url|api_key) |(?:not sent|outcome unknown|rejected|not retried): |HTTP \d+|\.\.\.")


def show(node):
    """Return the text of a string in the source, without its variable parts."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(show, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "\n"


def test_every_quoted_text_is_in_the_code():
    trees = [ast.parse(path.read_text()) for path in (ROOT / "pushsdk").rglob("*.py")]
    strings = (node for tree in trees for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.Constant)))
    texts = "\n".join({show(node) for node in strings})
    blocks = [block.text for block in page("troubleshooting").blocks if block.language == "text"]
    lines = "".join(blocks).splitlines()
    parts = [part.strip() for line in lines for part in JOINT.split(line)]
    joints = [joint.strip() for line in lines for joint in JOINT.findall(line) if joint[0].islower()]
    assert [part for part in [*parts, *joints] if part not in texts] == []
