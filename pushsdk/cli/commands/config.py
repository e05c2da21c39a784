"""``pushsdk config``: every setting in force, and its source."""

from typing import Any

from pushsdk.cli.exit import CommandError, Exit, for_shell
from pushsdk.cli.options import CallOptions, Json
from pushsdk.cli.settings import check, find, in_force, no_file, unknown_variables
from pushsdk.cli.terminal import print_json, say, warn

_UNSET = {"in_flight": "as many as the service takes", "rate": "no limit", "requests_per_second": "no limit"}
_WIDEST = 40  # longer values don't widen their column


def config(*, json: Json = False, options: CallOptions = CallOptions()) -> int:
    found = find(options.given())
    _, problems = check(found)
    settings = in_force(found, problems)
    if json:
        names = ("value", "source", "set_by")
        print_json({name: dict(zip(names, setting, strict=True)) for name, setting in settings.items()})
    else:
        rows = [
            (name, text_of(name, "not valid" if source and name in problems else value), source or layer)
            for name, (value, layer, source) in settings.items()
        ]
        width = max(len(text) for _, text, _ in rows if len(text) <= _WIDEST)
        for name, text, source in rows:
            say(f"{name:<19}  {text:<{width}}  {source}")
    for name, text in unknown_variables():
        warn(f"{name}: {text}")
    if problems:
        raise CommandError("\n".join(map(for_shell, problems.values())), Exit.CANNOT_RUN)
    return Exit.DONE


def text_of(name: str, value: Any) -> str:
    """Return the value of a setting for people."""
    if value is None:
        return no_file() if name == "config" else _UNSET.get(name, "not set")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
