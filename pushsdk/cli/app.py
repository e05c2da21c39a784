"""The commands and their help, from ``commands.json``. A command's module loads only when the command runs."""

import json
from pathlib import Path
from typing import Any

from cyclopts import App, Group

from pushsdk._version import __version__

# The commands by group and name, and the help of the words that begin several names.
_TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("commands.json").read_text(encoding="utf-8"))
GROUPS: dict[str, dict[str, dict[str, str]]] = _TABLE["groups"]


def _build_app() -> App:
    # Plain text: the other help formats load a markup parser.
    root = App(
        name="pushsdk",
        version=__version__,
        help="Send push notifications and report what happened to every user.",
        help_format="plaintext",
        group_commands=Group("Commands", sort_key=len(GROUPS)),
    )
    parents: dict[str, App] = {}
    for position, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=position)
        for order, (name, command) in enumerate(commands.items()):
            word, _, child = name.rpartition(" ")
            if word and word not in parents:
                parents[word] = App(name=word, help=_TABLE["parents"][word], group=group, sort_key=order)
                root.command(parents[word])
            end = f"Example: pushsdk {name} {command['example']}\n\nSee: pushsdk docs {command['page']}"
            texts = [command["help"], *([command["more"]] if "more" in command else []), end]
            options: dict[str, Any] = {"name": child, "help": "\n\n".join(texts), "sort_key": order}
            parent, options["group"] = (parents[word], None) if word else (root, group)
            parent.command(f"pushsdk.cli.commands.{command['path']}", **options)
    return root


app: App = _build_app()
