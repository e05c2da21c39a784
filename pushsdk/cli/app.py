"""The commands and their help. A command's module loads only when the command runs."""

from collections.abc import Mapping
from typing import NamedTuple

from cyclopts import App, Group, Parameter

from pushsdk._version import __version__


class Command(NamedTuple):
    """A command: its function, its line in the command list, and its help."""

    path: str
    """Module and function."""
    help: str
    page: str
    """The guide page."""
    example: str
    """The example's arguments."""
    more: str = ""


_CONTINUED = (
    "Run the same command again, or resume, to continue an interrupted run without pushing to a user twice. Ctrl-C "
    "stops after the requests in flight; a second Ctrl-C stops at once."
)
GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Send": {
        "send": Command("send:send", "Push a message to a few users.", "sending", "ann bob --title Hello --body World"),
        "broadcast": Command(
            "runs:broadcast",
            "Push a message to many users, in a run that survives a crash.",
            "broadcasts",
            "users.csv --message message.json --run spring.run --rate 5000",
            _CONTINUED,
        ),
        "resume": Command(
            "runs:resume",
            "Continue a run.",
            "broadcasts",
            "spring.run --rate 5000",
            "Needs neither the message nor the source of the users.",
        ),
        "stop": Command(
            "runs:stop",
            "Stop a run that another process sends.",
            "broadcasts",
            "spring.run",
            "The process stops after its requests in flight, as with Ctrl-C, and says who stopped it.",
        ),
        "campaign create": Command(
            "send:create",
            "Create a push campaign from a file and print its uuid.",
            "campaigns",
            "campaign.json",
            "Exit code 3 means that the campaign may exist: look up its externalId before you create it again.",
        ),
    },
    "Inspect (sends nothing)": {
        "plan": Command(
            "runs:plan",
            "Estimate the users, requests, bytes and time for a broadcast.",
            "broadcasts",
            "users.csv --message message.json --rate 5000",
        ),
        "status": Command(
            "runs:status",
            "Show what a run is, and its counts.",
            "broadcasts",
            "spring.run --watch",
            "Exits with the exit code of the run.",
        ),
        "report": Command(
            "runs:report",
            "Print the outcome of each user in a run.",
            "broadcasts",
            "spring.run --format csv --outcome UNKNOWN",
        ),
        "message lint": Command(
            "message:lint",
            "Check the message or campaign in a file.",
            "cli",
            "message.json",
            "Exits with 1 if there is advice.",
        ),
        "message preview": Command(
            "message:preview",
            "Show the message in a file as a user sees it.",
            "cli",
            """message.json --fields '{"name": "Ann"}'""",
        ),
        "openapi": Command(
            "message:openapi",
            "Print the service's two operations as an OpenAPI document.",
            "cli",
            "--base-url https://push.example/api > push.json",
        ),
        "claims list": Command(
            "claims:list_claims",
            "List the sends with an idempotency key that have claimed users.",
            "idempotency",
            "--claims redis://cache --older-than 15m",
        ),
        "claims show": Command(
            "claims:show",
            "Show the claim of a job: its age, and its users by state.",
            "idempotency",
            "--claims redis://cache --key order-42",
        ),
        "claims count": Command(
            "claims:count",
            "Count the sends with claimed users, and these users.",
            "idempotency",
            "--claims redis://cache --older-than 15m --json",
        ),
        "claims release": Command(
            "claims:release",
            "Release claimed users: the next delivery pushes to them, or with --accepted succeeds without a push.",
            "idempotency",
            "--claims redis://cache --key order-42",
            "These users may get the push twice. A send that may be in flight stays claimed, unless --force.",
        ),
        "config": Command(
            "doctor:config",
            "Show every setting in force, each with its source.",
            "cli",
            "--profile staging",
            "Options win over the profile, the profile over variables, variables over the rest of the settings file.",
        ),
        "doctor": Command(
            "doctor:doctor",
            "Check settings, host, connection and certificate.",
            "cli",
            "--profile staging",
            "Exits with 4 if a check fails.",
        ),
    },
    "Try out (on this machine)": {
        "emulator": Command(
            "emulator:app",
            "Run the push service with the faults and limits of your choice.",
            "emulator",
            "--faults flaky",
        ),
        "demo": Command(
            "demo:demo",
            "Push to thousands of users through faults, and compare client and service.",
            "emulator",
            "--users 5000",
        ),
    },
    "Help": {
        "docs": Command("help:docs", "Show the user guide: a page, the list of pages, or a search.", "cli", "retries"),
        "help": Command("help:help", "Show the help of a command.", "cli", "claims list"),
        "completion": Command(
            "help:completion", "Print the completion script for a shell.", "cli", "bash > pushsdk.bash"
        ),
    },
}
# The help for words that begin several names.
_PARENTS = {
    "campaign": "Create campaigns.",
    "claims": "Inspect and settle claims of sends with an idempotency key.",
    "message": "Check or show a message before it is sent.",
}


def _build_app() -> App:
    # Plain text: the other help formats load a markup parser.
    root = App(
        name="pushsdk",
        version=__version__,
        help="Send push notifications and report what happened to every user.",
        help_format="plaintext",
        group_commands=Group("Commands", sort_key=len(GROUPS)),
        # A flag has no opposite, and an option that is off shows no default.
        default_parameter=Parameter(negative=(), show_default=lambda value: str(value) if value else None),
    )
    parents: dict[str, App] = {}
    for position, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=position)
        for order, (name, command) in enumerate(commands.items()):
            word, _, child = name.rpartition(" ")
            if word and word not in parents:
                parents[word] = App(name=word, help=_PARENTS[word], group=group, sort_key=order)
                root.command(parents[word])
            end = f"Example: pushsdk {name} {command.example}\n\nSee: pushsdk docs {command.page}"
            text = "\n\n".join(filter(None, (command.help, command.more, end)))
            parent = parents[word] if word else root
            parent.command(
                f"pushsdk.cli.commands.{command.path}",
                name=child,
                help=text,
                sort_key=order,
                group=None if word else group,
            )
    return root


app: App = _build_app()
