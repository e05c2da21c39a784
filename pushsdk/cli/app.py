"""The commands and their help. Each command is registered by import path, so its module loads only when it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App, Group

from pushsdk._version import __version__

_CONTINUED = (
    "Run the same command again, or resume, to continue an interrupted run without pushing to a user twice. Ctrl-C "
    "stops after the requests in flight; a second Ctrl-C stops at once."
)
_ADVICE = "Exits with 1 if there is advice."
_FAILED = "Exits with 4 if a check fails."
_CREATED = "Exit code 3 means that the campaign may exist: look up its externalId before you create it again."
_RELEASED = "These users may get the push twice. Release sends of a dead process, never a send that is in flight."
_SETTINGS = "Options win over the profile, the profile over variables, variables over the rest of the settings file."

# Group: command: (module:function, line in the list of commands, further help).
_COMMANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Send": {
        "send": ("send:send", "Push a message to a few users."),
        "broadcast": ("runs:broadcast", "Push a message to many users, in a run that survives a crash.", _CONTINUED),
        "resume": ("runs:resume", "Continue a run.", "Needs neither the message nor the source of the users."),
        "campaign create": ("send:create", "Create a push campaign from a file and print its uuid.", _CREATED),
    },
    "Inspect (sends nothing)": {
        "plan": ("runs:plan", "Estimate the users, requests, bytes and time of a broadcast."),
        "status": ("runs:status", "Show what a run is, and its counts.", "Exits with the exit code of the run."),
        "report": ("runs:report", "Print the outcome of each user of a run."),
        "message lint": ("message:lint", "Check the message or campaign in a file.", _ADVICE),
        "message preview": ("message:preview", "Show the message in a file as a user sees it."),
        "claims list": ("claims:list_claims", "List the sends with an idempotency key that have claimed users."),
        "claims count": ("claims:count", "Count the sends with claimed users, and these users."),
        "claims release": ("claims:release", "Release claimed users: the next delivery pushes to them.", _RELEASED),
        "config": ("config:config", "Show every setting in force, each with its source.", _SETTINGS),
        "doctor": ("doctor:doctor", "Check settings, host, connection and certificate.", _FAILED),
    },
    "Try out (on this machine)": {
        "emulator": ("emulator:app", "Run the push service with the faults and limits of your choice."),
        "demo": ("demo:demo", "Push to thousands of users through faults, and compare client and service."),
    },
    "Help": {
        "docs": ("help:docs", "Show the user guide: a page, the list of pages, or a search."),
        "help": ("help:help", "Show the help of a command."),
        "completion": ("help:completion", "Print the completion script of a shell."),
    },
}
# Command: (page of the guide, arguments of an example).
EXAMPLES = {
    "send": ("sending", "ann bob --title Hello --body World"),
    "broadcast": ("broadcasts", "users.csv --message message.json --run spring.run --rate 5000"),
    "resume": ("broadcasts", "spring.run --rate 5000"),
    "campaign create": ("campaigns", "campaign.json"),
    "plan": ("broadcasts", "users.csv --message message.json --rate 5000"),
    "status": ("broadcasts", "spring.run --watch"),
    "report": ("broadcasts", "spring.run --format csv --outcome UNKNOWN"),
    "message lint": ("cli", "message.json"),
    "message preview": ("cli", """message.json --fields '{"name": "Ann"}'"""),
    "claims list": ("idempotency", "--claims redis://cache --older-than 15m"),
    "claims count": ("idempotency", "--claims redis://cache --older-than 15m --json"),
    "claims release": ("idempotency", "--claims redis://cache --older-than 1h"),
    "config": ("cli", "--profile staging"),
    "doctor": ("cli", "--profile staging"),
    "emulator": ("emulator", "--faults flaky"),
    "demo": ("emulator", "--users 5000"),
    "docs": ("cli", "retries"),
    "help": ("cli", "claims list"),
    "completion": ("cli", "bash > pushsdk.bash"),
}
_PARENTS = {
    "campaign": "Create campaigns.",
    "claims": "Inspect and release claims of sends with an idempotency key.",
    "message": "Check or show a message before it is sent.",
}


def _build_app() -> App:
    # Plain text: the other help formats load a markup parser.
    root = App(
        name="pushsdk",
        version=__version__,
        help="Send push notifications and report what happened to every user.",
        help_format="plaintext",
        group_commands=Group("Commands", sort_key=len(_COMMANDS)),
    )
    parents: dict[str, App] = {}
    for position, (title, commands) in enumerate(_COMMANDS.items()):
        group = Group(title, sort_key=position)
        for order, (name, (path, *texts)) in enumerate(commands.items()):
            parent_name, _, child = name.rpartition(" ")
            if parent_name and parent_name not in parents:
                parents[parent_name] = App(name=parent_name, help=_PARENTS[parent_name], group=group, sort_key=order)
                root.command(parents[parent_name])
            page, example = EXAMPLES[name]
            texts = [*texts, f"Example: pushsdk {name} {example}", f"See: pushsdk docs {page}"]
            options: dict[str, Any] = {"name": child, "help": "\n\n".join(texts), "sort_key": order}
            parent, options["group"] = (parents[parent_name], None) if parent_name else (root, group)
            parent.command(f"pushsdk.cli.commands.{path}", **options)
    return root


app: App = _build_app()
