"""Where each setting comes from: its argument, then its variable, then the settings file; checked, each by its source.

A settings file is read where it is named, or from the user's configuration folder; never from the working
directory, where anybody may have left one that sends the key elsewhere. Errors name the source, never the value.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from pushsdk._core.address import HeaderSecret, check_base_url, check_key, check_proxy, sealed
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.policy import Limits, Rate, RetryPolicy, Timeout
from pushsdk._io.files import objection
from pushsdk.cli.exit import usage
from pushsdk.options import ClientOptions

__all__ = ["KEYS", "Found", "Settings", "check", "find", "read_key", "resolve"]

_LARGEST = 64 * 1024
_PATIENCE = 60.0  # seconds: a password manager may ask a person first
_Positive = Annotated[float, Meta(gt=0, lt=1e9)]

# name: (its type, in words). The argument is --name-with-dashes, the variable PUSHSDK_NAME, in the file it is `name`.
_KINDS: Mapping[str, tuple[Any, str]] = {
    "base_url": (str, "a URL"),
    "timeout": (_Positive, "a number of seconds greater than 0"),
    "attempt_timeout": (_Positive, "a number of seconds greater than 0"),
    "retry": (Literal["safe", "collapsible", "at-least-once", "none"], "safe, collapsible, at-least-once or none"),
    "in_flight": (Annotated[int, Meta(ge=1, lt=10**9)], "a whole number, 1 or more"),
    "rate": (_Positive, "a number of users per second greater than 0"),
    "requests_per_second": (_Positive, "a number greater than 0"),
    "allow_insecure": (bool, "true or false"),
    "proxy": (str, "a URL"),
}
KEYS = ("api_key", "api_key_file", "api_key_command")
"""The ways to the key. Of one place (arguments, variables, file) one may be used."""


def read_key(way: str, value: object, folder: Path) -> HeaderSecret:
    """The key by this way: ``api_key``, ``api_key_file`` or ``api_key_command``.

    Relative paths, of the command too, are below ``folder``. One line end after the key is dropped. Raises
    ConfigurationError.
    """
    if way == "api_key_file":
        return _checked(_of_file(folder / str(value)))
    if way == "api_key_command":
        return _checked(_of_command(str(value), folder))
    return check_key(sealed(value))


def _of_file(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError as error:
        raise ConfigurationError(f"can't read the file: {error.strerror}") from None


def _of_command(command: str, folder: Path) -> bytes:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise ConfigurationError("expected a command and its arguments, quoted as for a shell")
    try:
        # Standard input stays ours: user ids may come by it. What the command says on stderr is for the user.
        ended = subprocess.run(  # noqa: S603 - the user's own command, by no shell
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder, timeout=_PATIENCE, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"can't run the command: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"the command did not end within {_PATIENCE:.0f} s") from None
    if ended.returncode:
        raise ConfigurationError(f"the command failed with exit code {ended.returncode}")
    return ended.stdout


def _checked(content: bytes) -> HeaderSecret:
    text = content.decode("ascii", "replace")
    return check_key(sealed(text.removesuffix("\n").removesuffix("\r")))


class Found(Struct, frozen=True):
    """A value as it was found, and in words where: ``--timeout``, ``PUSHSDK_TIMEOUT``, ``config.toml: timeout``."""

    value: Any
    source: str
    folder: Path = Path()
    """What a relative path in it is relative to."""

    def __repr__(self) -> str:
        return f"Found({self.source!r})"


class Settings(ClientOptions):
    """The arguments of ``AsyncPushClient``, all of them checked."""

    base_url: str
    api_key: HeaderSecret


def resolve(given: Mapping[str, object]) -> Settings:
    """Return the settings of a command that was given these options.

    Raises for the first that is wrong: a usage error if it is the value of an option, else ConfigurationError.
    """
    found = find(given)
    settings, wrong = check(found)
    if settings is not None:
        return settings
    name, text = next(iter(wrong.items()))
    # The way to a key is configuration wherever it is named: what is wrong lies behind it.
    by_option = name in _KINDS and name in found and found[name].source.startswith("--")
    raise usage(text) if by_option else ConfigurationError(text)


# -- finding ------------------------------------------------------------------------------------------------------


def find(given: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> dict[str, Found]:
    """Every setting that is set anywhere, by name, and ``config``. Raises ConfigurationError for a bad file."""
    file = _settings_file(given, environ)
    places = (
        {name: Found(value, f"--{name.replace('_', '-')}") for name, value in given.items()},
        {
            name: Found(environ[variable], variable)
            for name in (*_KINDS, *KEYS)
            if (variable := f"PUSHSDK_{name.upper()}") in environ
        },
        {} if file is None else _read(file),
    )
    found: dict[str, Found] = {} if file is None else {"config": Found(str(file), str(file))}
    for place in places:
        ways = [place[name].source for name in KEYS if name in place]
        if len(ways) > 1:
            raise ConfigurationError(f"the key is set twice, by {ways[0]} and by {ways[1]}: keep one of them")
        has_key = any(name in found for name in KEYS)
        for name, each in place.items():
            if name in KEYS:
                found.update({} if has_key else {name: each})
            elif name in _KINDS:
                found.setdefault(name, each)
    return {name: found[name] for name in ("config", *_KINDS, *KEYS) if name in found}


def _settings_file(given: Mapping[str, object], environ: Mapping[str, str]) -> Path | None:
    named = given.get("config") or environ.get("PUSHSDK_CONFIG")
    if named:
        return Path(str(named))
    folder = _configuration_folder(environ)
    file = folder and folder / "pushsdk" / "config.toml"
    return file if file and file.exists() else None


def _configuration_folder(environ: Mapping[str, str]) -> Path | None:
    """The user's; None where there is none. A relative one would be below the working directory: it does not count."""
    if sys.platform == "win32":
        candidates = [environ.get("APPDATA")]
    else:
        candidates = [environ.get("XDG_CONFIG_HOME"), os.path.join(environ.get("HOME", ""), ".config")]
    return next((Path(each) for each in candidates if each and os.path.isabs(each)), None)


def _read(file: Path) -> dict[str, Found]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST)
            found = os.fstat(opened.fileno())
        table = tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        # Where it is, not what: the parser's own text may quote a piece of the file.
        where = str(error).rpartition("(")[2].rstrip(")") if isinstance(error, tomllib.TOMLDecodeError) else "not UTF-8"
        raise ConfigurationError(f"{file}: not a TOML file ({where})") from None
    # It says where the key goes, and may name a command.
    if why := objection(found):
        raise ConfigurationError(f"{file}: {why}")
    for name in table:
        if name not in _KINDS and name not in KEYS:
            raise ConfigurationError(f"{file}: {name!r} is no setting; there are {', '.join((*_KINDS, *KEYS))}")
    if "api_key" in table and os.name == "posix" and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"{file}: api_key: others may read the file; chmod 600 it, or use api_key_file")
    folder = file.absolute().parent
    return {name: Found(value, f"{file}: {name}", folder) for name, value in table.items()}


# -- checking -----------------------------------------------------------------------------------------------------


def check(found: Mapping[str, Found]) -> tuple[Settings | None, dict[str, str]]:
    """Return the settings, None if any is wrong; and the errors by the name of the setting."""
    values: dict[str, Any] = dict.fromkeys(_KINDS)
    wrong: dict[str, str] = {}

    def take(name: str, make: Callable[..., Any], *arguments: object) -> None:
        try:
            values[name] = make(*arguments)
        except ConfigurationError as error:
            wrong[name] = f"{found[name].source}: {error}"

    for name in (name for name in _KINDS if name in found):
        take(name, _typed, name, found[name].value)
    way = next((way for way in KEYS if way in found), None)
    if way is None:
        wrong["api_key"] = _NO_KEY
    else:
        take(way, read_key, way, found[way].value, found[way].folder)
    insecure = bool(values["allow_insecure"])
    if "base_url" not in found:
        wrong["base_url"] = _NO_URL
    elif "base_url" not in wrong:
        take("base_url", lambda: check_base_url(values["base_url"], allow_insecure=insecure))
    if "proxy" in found and not wrong.keys() & {"base_url", "proxy"}:
        take("proxy", lambda: check_proxy(values["proxy"], base_url=values["base_url"], allow_insecure=insecure))
    if wrong:
        return None, wrong
    seconds = {"total": values["timeout"], "attempt": values["attempt_timeout"]}
    settings: Settings = {
        "base_url": values["base_url"],
        "api_key": values[str(way)],
        "timeout": Timeout(**{name: value for name, value in seconds.items() if value is not None}),
        "retry": None if values["retry"] is None else _RETRIES[values["retry"]](),
        "limits": None if values["in_flight"] is None else Limits(in_flight=values["in_flight"]),
        "rate": Rate(users_per_second=values["rate"], requests_per_second=values["requests_per_second"]),
        "allow_insecure": insecure,
        "proxy": values["proxy"],
    }
    return settings, {}


_NO_KEY = "no Api-Key: set PUSHSDK_API_KEY, or give --api-key-file, --api-key-command or one of them in a settings file"
_NO_URL = "no address: give --base-url, or set PUSHSDK_BASE_URL, or base_url in a settings file"
_RETRIES: Mapping[str, Callable[[], RetryPolicy]] = {
    "safe": RetryPolicy.safe,
    "collapsible": RetryPolicy.collapsible,
    "at-least-once": RetryPolicy.at_least_once,
    "none": RetryPolicy.none,
}


def _typed(name: str, value: object) -> Any:
    kind, words = _KINDS[name]
    try:
        # A text, as every variable is one, may stand for a number.
        plain = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError:
        raise ConfigurationError(f"expected {words}") from None
    return sealed(plain) if kind is str else plain
