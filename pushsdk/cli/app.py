"""The commands and where each lives. A command is registered here by its import path and loads when it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App, Group

from pushsdk._version import __version__

__all__ = ["app"]

_RUNS = (
    "The same command again, or resume, takes a run up that was ended by whatever: nobody is pushed twice for that. "
    "Ctrl-C waits for what is on its way; twice, it stops at once."
)
_CREATED = (
    "Exits with 3 where it may have been created all the same: look its externalId up before you create it again."
)
_ADVICE = "Exits with 1 where there is advice, with 2 where it can't be sent at all."
_RELEASED = (
    "These users may get the push a second time: do this for sends whose process died, never for one that is still in "
    "flight."
)
_FAILS = "Exits with 4 where something fails."

# name: (where, the line in the help, what its own help adds). A new command is one line here and a module beside this.
_COMMANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Send": {
        "send": ("send:send", "Push a message to some users."),
        "broadcast": (
            "runs:broadcast",
            "Push a message to any number of users, as a run that survives a crash.",
            _RUNS,
        ),
        "resume": ("runs:resume", "Take up a run where it ended.", "The source of its users is not needed."),
        "campaign create": (
            "send:create",
            "Create the push campaign in a file, and print its uuid.",
            _CREATED,
        ),
    },
    "Look (nothing is sent)": {
        "plan": ("runs:plan", "Say what a broadcast would come to."),
        "status": ("runs:status", "Say how a run stands.", "Exits as the run would."),
        "report": ("runs:report", "Print one row for every user of a run."),
        "message lint": ("message:lint", "Check the message or campaign in a file, and advise.", _ADVICE),
        "message preview": ("message:preview", "Show the message in a file as a person would see it."),
        "claims list": ("claims:list_claims", "List sends with a idempotency key that are claimed and not settled."),
        "claims count": ("claims:count", "Count them, and their users."),
        "claims release": ("claims:release", "Open their users, so that the next delivery sends to them.", _RELEASED),
        "doctor": ("doctor:doctor", "Check settings, host name, connection and certificate.", _FAILS),
    },
    "Try (on this machine)": {
        "emulator": ("emulator:app", "Run the push service, with the faults you like; or a command beside it."),
        "demo": ("demo:demo", "Push to thousands through faults, and see that nobody is lost or doubled."),
    },
}
_FAMILIES = {
    "campaign": "Create campaigns.",
    "claims": "See and release the claims of sends with a idempotency key.",
    "message": "Check or show a message before it is sent.",
}


def _made() -> App:
    # Plain text: the other formats load a parser of markup for every help.
    made = App(
        name="pushsdk",
        version=__version__,
        help="Push notifications that say of every user what happened.",
        help_format="plaintext",
        group_commands=Group("Commands", sort_key=len(_COMMANDS)),
    )
    families: dict[str, App] = {}
    for place, (title, commands) in enumerate(_COMMANDS.items()):
        group = Group(title, sort_key=place)
        for order, (name, (where, *words)) in enumerate(commands.items()):
            family, _, member = name.rpartition(" ")
            if family and family not in families:
                families[family] = App(name=family, help=_FAMILIES[family], group=group, sort_key=order)
                made.command(families[family])
            options: dict[str, Any] = {"name": member, "help": "\n\n".join(words), "sort_key": order}
            parent, options["group"] = (families[family], None) if family else (made, group)
            parent.command(f"pushsdk.cli.commands.{where}", **options)
    made.register_install_completion_command(help="Install the completion of commands and options for your shell.")
    return made


app: App = _made()
