"""Command settings: from the options, then variables, then the settings file.

A settings file is read if it is named, or from the user's configuration folder; never from the working directory,
where another user may have left a file that sends the Api-Key elsewhere. Errors name the source, never the value.
"""

import codecs
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pushsdk._core.address import check_base_url, check_key, check_proxy
from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import Count, Duration, PerSecond, Rule, check
from pushsdk._core.outcome import GuardedValue
from pushsdk._core.policy import Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.secret import Secret, sealed
from pushsdk._core.words import near_word
from pushsdk._io.files import is_locked, objection
from pushsdk.cli.exit import text_of, usage_error
from pushsdk.options import ClientOptions

T = TypeVar("T")
_MAX_BYTES = 64 * 1024
_PASSWORD = re.compile(r"(?<=//).*(?=@)|(?<=\?).*|^(?!.*//|sqlite:|memory:).*")
_COMMAND_TIMEOUT = 60.0  # seconds: a password manager may ask for a password first

RetryName = Literal["safe", "collapsible", "at-least-once", "none"]
# Each setting's kind. The option is --name-with-dashes, the variable PUSHSDK_NAME, the key in the file `name`.
SETTINGS: Mapping[str, Any] = {
    "base_url": str,
    "timeout": Duration,
    "attempt_timeout": Duration,
    "retry": RetryName,
    "in_flight": Count,
    "rate": Annotated[PerSecond, Rule("a number of users per second greater than 0")],
    "requests_per_second": PerSecond,
    "allow_insecure": Annotated[bool, Rule("true or false")],
    "proxy": str,
    "only_users": str,
}
DEFAULTS: Mapping[str, Any] = {"timeout": 30.0, "attempt_timeout": 10.0, "retry": "safe", "allow_insecure": False}
"""The values for settings that are not set. Without a default, a setting is off."""
KEYS = ("api_key", "api_key_file", "api_key_command")
"""The settings that give the Api-Key. Options, variables and file may each have one of them."""
OTHERS = ("config", "profile", "claims", "log")
"""The other variables for commands. The first two are options too."""
EMULATOR = "emulator"
"""The profile of the only running emulator; each has a profile with its port, for example emulator-8080, too."""
_IN_FILES = (*SETTINGS, *KEYS)
_NAMES = (*_IN_FILES, *OTHERS)
_VARIABLES = (*_NAMES, "show_answers")
LayerName = Literal["option", "profile", "variable", "file", "default"]
"""The kind of source for a value. A default has no source."""
_NO_KEY = "no Api-Key: set PUSHSDK_API_KEY, pass --api-key-file or --api-key-command, or use a settings file"
_NO_URL = (
    "no base URL: set PUSHSDK_BASE_URL, or pass --base-url; for a local service, run pushsdk emulator and pass "
    "--profile emulator"
)


class SettingValue(GuardedValue, frozen=True):
    """A value and its source, for example ``--timeout``, ``PUSHSDK_TIMEOUT`` or ``config.toml: timeout``."""

    value: Any
    source: str
    layer: LayerName
    folder: Path = Path()
    """The folder that a relative path in the value starts from."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("source", self.source)]  # without the value, which may be the key


Layer = Mapping[str, SettingValue]
InForce = Mapping[str, tuple[Any, LayerName, str | None]]
"""Value, layer and source for every setting."""
Tables = Mapping[str | None, Layer]
"""The settings in files by profile; those without a profile are under None."""


class ClientSettings(ClientOptions):
    """The checked ``AsyncPushClient`` arguments."""

    base_url: str
    api_key: Any
    """A Secret."""


def allowed(users: Iterable[str], settings: ClientSettings) -> list[str]:
    """Return the users that get pushes with these settings."""
    only_users = settings.get("only_users")
    return [user for user in users if only_users is None or user in only_users]


def resolve(options: Mapping[str, object], *, key_needed: bool = True) -> ClientSettings:
    """Return the settings for a command that got these options.

    Raises all problems: a usage error if an option's value has a problem, else ConfigurationError.
    """
    found = find(options)
    settings, problems = checked(found, key_needed=key_needed)
    if settings is not None:
        return settings
    ignored = (f"{variable} is {advice}" for variable, advice in unknown_variables())
    text = "\n".join((*problems.values(), *ignored))
    # A bad key is no usage error: its option names a file or a command, and the problem is in there.
    by_option = any(name in SETTINGS and name in found and found[name].source.startswith("--") for name in problems)
    raise usage_error(text) if by_option else ConfigurationError(text)


def find(options: Mapping[str, object]) -> dict[str, SettingValue]:
    """Return every setting that is set, and `OTHERS`, by name. Raises ConfigurationError for a bad file."""
    given = {name: SettingValue(value, f"--{name.replace('_', '-')}", "option") for name, value in options.items()}
    variables = _variables()
    others = {name: setting for name, setting in {**variables, **given}.items() if name in OTHERS}
    if "config" not in others and (default := _default_file()) and default.exists():
        others["config"] = SettingValue(str(default), "", "default")
    tables = _read_settings(Path(others["config"].value), others["config"].source) if "config" in others else {}
    layers = (given, _profile(tables, others), variables, tables.get(None, {}))
    return {**_merged(layers), **others}


def _profile(tables: Tables, others: Layer) -> Layer:
    """Return the settings in the chosen profile, if any. Raises ConfigurationError unless one has its name."""
    profile = others.get("profile")
    if profile is None:
        return {}
    if profile.value in tables:
        return tables[profile.value]
    if re.fullmatch(rf"{EMULATOR}(-\d+)?", str(profile.value)):
        return _emulator_profile(profile.value)
    known = ", ".join(sorted(filter(None, tables))) or "none: add a table [profiles.NAME]"
    why = f"{others['config'].value} has {known}" if "config" in others else no_file()
    raise ConfigurationError(f"no profile has the name {profile.value!r}; {why}")


def _emulator_profile(profile: str) -> Layer:
    """Return the settings for a running emulator. Raises ConfigurationError unless exactly one has the profile."""
    running = running_emulators()
    files = [file for file in running if profile in (file.stem, EMULATOR)]
    # A file that has just been created is empty.
    if len(files) == 1 and (layer := _read_settings(files[0]).get(files[0].stem)):
        return layer
    names = " or ".join(file.stem for file in running)
    fix = f"pass --profile {names}, or set PUSHSDK_PROFILE" if running else "start pushsdk emulator"
    raise ConfigurationError(
        f"profile {profile} must name one running emulator, and names {len(files) or 'none'}: {fix}"
    )


def _variables() -> dict[str, SettingValue]:
    """Return the settings in variables. An empty variable in `OTHERS` is not set."""
    names = {f"PUSHSDK_{name.upper()}": name for name in _NAMES}
    return {
        name: SettingValue(os.environ[variable], variable, "variable")
        for variable, name in names.items()
        if os.environ.get(variable) or (variable in os.environ and name not in OTHERS)
    }


def _merged(layers: Iterable[Layer]) -> dict[str, SettingValue]:
    """Return the first value of every setting. The first layer that gives the Api-Key gives it alone, and once."""
    merged: dict[str, SettingValue] = {}
    for layer in layers:
        sources = [layer[name].source for name in KEYS if name in layer]
        if len(sources) > 1:
            raise ConfigurationError(f"the Api-Key is set twice, by {sources[0]} and by {sources[1]}: remove one")
        names = _IN_FILES if merged.keys().isdisjoint(KEYS) else SETTINGS
        merged = {**{name: layer[name] for name in names if name in layer}, **merged}
    return merged


def in_force(found: Layer, problems: Mapping[str, str]) -> InForce:
    """Return all settings. A secret is ``***``; with a problem, the value is None."""
    settings = {}
    for name in _NAMES:
        setting = found.get(name, SettingValue(DEFAULTS.get(name), "", "default"))
        value = None if name in problems else shown(name, setting.value)
        settings[name] = value, setting.layer, setting.source or None
    return settings


def shown(name: str, value: Any) -> Any:
    """Return a setting's value, or its text without its secrets."""
    if value is None:
        return None
    if name in ("api_key", "api_key_command"):  # a command may contain a password
        return "***"
    if SETTINGS.get(name, str) is not str:
        return _typed(name, value, SETTINGS[name])
    return _PASSWORD.sub("***", value) if name in ("proxy", "claims") else str(value)


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Yield the name of each variable that looks like a pushsdk setting but isn't, with advice."""
    for variable in sorted(os.environ):
        prefix, name = variable[:8], variable[8:]
        if prefix.upper() == "PUSHSDK_" and (prefix != "PUSHSDK_" or name not in map(str.upper, _VARIABLES)):
            near = near_word(name, _VARIABLES)
            advice = f"did you mean PUSHSDK_{near.upper()}?" if near else "for the variables see: pushsdk docs cli"
            yield variable, f"not a pushsdk variable, so it is ignored: {advice}"
        elif variable.upper() == "HTTPS_PROXY" and "PUSHSDK_PROXY" not in os.environ:
            yield variable, "not read by pushsdk: to send through a proxy, set PUSHSDK_PROXY or pass --proxy"


def no_file() -> str:
    """Say where the settings file would be."""
    file = _default_file()
    return f"no settings file: {file} does not exist" if file else "no settings file: pass --config FILE"


def _default_file() -> Path | None:
    if sys.platform == "win32":
        folders = [os.environ.get("APPDATA")]
    else:
        folders = [os.environ.get("XDG_CONFIG_HOME"), os.path.join(os.environ.get("HOME", ""), ".config")]
    # A relative path is below the working directory.
    return next((Path(path, "pushsdk", "config.toml") for path in folders if path and os.path.isabs(path)), None)


def emulator_file(port: int | None) -> Path | None:
    """Return the path for an emulator's profile, a file that is locked while this emulator runs."""
    file = _default_file()
    return file and file.with_name(f"{EMULATOR}-{port}.toml")


def running_emulators() -> list[Path]:
    """Return the running emulators' files, whose stems are the profiles. A killed emulator's file is not locked."""
    default = _default_file()
    return sorted(filter(is_locked, default.parent.glob(f"{EMULATOR}-*.toml"))) if default else []


def _read_settings(file: Path, source: str = "") -> Tables:
    """Return the settings in a file, for all and for each profile. ``source`` named the file."""
    table, mode = _read_toml(file, source)
    profiles = table.pop("profiles", {})
    try:
        msgspec.convert(profiles, dict[str, dict[str, Any]])
    except msgspec.ValidationError:
        raise ConfigurationError(f"{file}: profiles must be tables, for example [profiles.staging]") from None
    names = {*table}.union(*profiles.values())
    for name in sorted(names.difference(_IN_FILES)):
        raise ConfigurationError(f"{file}: unknown setting {name!r}{_near_setting(name, table)}")
    if "api_key" in names and os.name == "posix" and mode & 0o077:
        raise ConfigurationError(
            f"{file}: only its owner may read a file with an api_key: run chmod 600 on it, or use api_key_file"
        )

    def layer(values: Mapping[str, Any], at: str, kind: LayerName) -> Layer:
        folder = file.absolute().parent
        return {name: SettingValue(value, f"{file}: {at}{name}", kind, folder) for name, value in values.items()}

    layers = {name: layer(values, f"profiles.{name}.", "profile") for name, values in profiles.items()}
    return {None: layer(table, "", "file"), **layers}


def _read_toml(file: Path, source: str) -> tuple[dict[str, Any], int]:
    """Return a TOML file's content and mode. Its owner must be the user, or root."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES)
            status = os.fstat(opened.fileno())
        table = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{source}{': ' if source else ''}{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        # Only the position: the parser's text may quote the file.
        place = str(error).rpartition("(")[2] if isinstance(error, tomllib.TOMLDecodeError) else ""
        reason = f"({place}; a setting is written name = 'value'" if place else "(not UTF-8, or nested too deeply)"
        raise ConfigurationError(f"{file}: not a TOML file {reason}") from None
    # The file says where the Api-Key goes, and may name a command to run.
    if why := objection(status):
        raise ConfigurationError(f"{file}: {why}")
    return table, status.st_mode


def _near_setting(name: str, table: Mapping[str, object]) -> str:
    near = near_word(name, (*_IN_FILES, "profiles"))
    if isinstance(table.get(name), dict) and near != "profiles":
        return f": a profile is written [profiles.{name}]"
    return f": did you mean {near}?" if near else f"; use {', '.join(_IN_FILES)}"


def checked(found: Layer, *, key_needed: bool = True) -> tuple[ClientSettings | None, dict[str, str]]:
    """Return the settings, or None if there are problems; and the problems by setting name."""
    values: dict[str, Any] = {**dict.fromkeys(_IN_FILES), **DEFAULTS}
    problems: dict[str, str] = {}

    def convert(name: str, function: Callable[[], Any]) -> None:
        try:
            values[name] = function()
        except ConfigurationError as error:
            source = f"{found[name].source}: " if name in found else ""
            problems[name] = f"{source}{text_of(error)}"

    for name in filter(found.__contains__, SETTINGS):
        try:
            values[name] = _typed(found[name].source, found[name].value, SETTINGS[name])
        except ConfigurationError as error:
            problems[name] = text_of(error)
    key = next(filter(found.__contains__, KEYS), "api_key")
    if key_needed:
        convert(key, lambda: read_key(key, _needed(found.get(key), _NO_KEY)))
    insecure = values["allow_insecure"]
    if "base_url" not in problems:
        convert("base_url", lambda: check_base_url(_needed(values["base_url"], _NO_URL), allow_insecure=insecure))
    if values["proxy"] is not None and "base_url" not in problems:
        convert("proxy", lambda: check_proxy(values["proxy"], base_url=values["base_url"], allow_insecure=insecure))
    return (None if problems else _client_settings(values, values[key])), problems


def _needed(value: T | None, problem: str) -> T:
    if value is None:
        raise ConfigurationError(problem)
    return value


def _client_settings(values: Mapping[str, Any], key: Secret | None) -> ClientSettings:
    return {
        "base_url": values["base_url"],
        "api_key": key or Secret.of(""),
        "timeout": Timeout(total=values["timeout"], attempt=values["attempt_timeout"]),
        "retry": getattr(RetryPolicy, values["retry"].replace("-", "_"))(),
        "limits": Limits(in_flight=values["in_flight"]),
        "rate": Rate(users_per_second=values["rate"], requests_per_second=values["requests_per_second"]),
        "allow_insecure": values["allow_insecure"],
        "proxy": values["proxy"],
        "only_users": values["only_users"] and {user.strip() for user in values["only_users"].reveal().split(",")},
        "show_answers": True,
    }


def _typed(source: str, value: object, kind: Any) -> Any:
    """Return a setting's value with its type. Raises ConfigurationError."""
    with suppress(msgspec.ValidationError):  # the check words the error
        # Variables are texts, so a text may stand for a number.
        value = msgspec.convert(value, kind, strict=not isinstance(value, str))
    check(source, value, kind)
    return sealed(value) if kind is str else value


def read_key(name: str, setting: SettingValue) -> Secret:
    """Return the Api-Key that a setting in `KEYS` gives, without one line end after it.

    Relative paths, in a command too, start from its folder. Raises ConfigurationError.
    """
    secret = Secret.of(setting.value)
    if name == "api_key":
        return check_key(secret)
    read = _file_content if name == "api_key_file" else _command_output
    content = read(str(secret.reveal()), setting.folder).removeprefix(codecs.BOM_UTF8)
    return check_key(Secret.of(content.decode("ascii", "replace").removesuffix("\n").removesuffix("\r")))


def _file_content(name: str, folder: Path) -> bytes:
    try:
        with (file := folder / name).open("rb") as opened:
            return opened.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(f"can't read {file}: {error.strerror}") from None


def _command_output(command: str, folder: Path) -> bytes:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise ConfigurationError("must be a command with its arguments, quoted as in a shell")
    try:
        # No standard input: user ids may come from there. The user sees the command's stderr.
        ended = subprocess.run(  # noqa: S603 - the user's command, without a shell
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder, timeout=_COMMAND_TIMEOUT, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"can't run the command: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"the command did not end within {_COMMAND_TIMEOUT:.0f} s") from None
    if ended.returncode:
        raise ConfigurationError(f"the command failed with exit code {ended.returncode}")
    return ended.stdout
