"""The commands and where each lives. A command is registered here by its import path and loads when it is run."""

from __future__ import annotations

from cyclopts import App

from pushsdk._version import __version__

__all__ = ["app"]

# name: (where, the line in the help). A new command is one line here and one module beside this one.
_COMMANDS = {
    "send": ("send:send", "Push a message to some users, and say what happened."),
    "demo": ("demo:demo", "Push to thousands through faults, and see that nobody is lost or doubled."),
    "emulator": ("emulator:emulator", "Run the push service on this machine, with the faults you like."),
    "doctor": ("doctor:doctor", "Check settings, name, connection and certificate; nothing is sent."),
}
_GROUPS = {
    "campaign": (
        "Create campaigns.",
        {"create": ("campaign:create", "Create the push campaign in a file, and print its uuid.")},
    ),
    "message": (
        "Look at messages before they are sent.",
        {
            "lint": ("message:lint", "Check the message or campaign in a file, and advise."),
            "preview": ("message:preview", "Show the message in a file as a person would see it."),
        },
    ),
}


def _with_commands(group: App, commands: dict[str, tuple[str, str]]) -> App:
    for name, (where, words) in commands.items():
        group.command(f"pushsdk.cli.{where}", name=name, help=words)
    return group


# Plain text: the other formats load a parser of markup for every help.
app: App = App(
    name="pushsdk",
    version=__version__,
    help="Push notifications that say of every user what happened.",
    help_format="plaintext",
)
_with_commands(app, _COMMANDS)
for _name, (_words, _commands) in _GROUPS.items():
    app.command(_with_commands(App(name=_name, help=_words), _commands))
app.register_install_completion_command(help="Install the completion of commands and options for your shell.")
