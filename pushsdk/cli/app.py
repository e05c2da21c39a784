"""The commands and where each lives. A command is registered here by its import path and loads when it is run."""

from __future__ import annotations

from cyclopts import App

from pushsdk._version import __version__

__all__ = ["app"]

# name: (where, the line in `pushsdk --help`). A new command is one line here and one module beside this one.
_COMMANDS = {
    "demo": ("pushsdk.cli.demo:demo", "Push to thousands through faults, and see that nobody is lost or doubled."),
    "emulator": ("pushsdk.cli.emulator:emulator", "Run the push service on this machine, with the faults you like."),
}

app: App = App(name="pushsdk", version=__version__, help="Push notifications that say of every user what happened.")
for _name, (_where, _help) in _COMMANDS.items():
    app.command(_where, name=_name, help=_help)
