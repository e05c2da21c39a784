"""Settings of commands: their sources, precedence and errors."""

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from pushsdk import ConfigurationError, Limits, Rate, RetryPolicy, Timeout
from pushsdk._core.secret import Secret
from pushsdk.cli import settings as module
from pushsdk.cli.exit import CommandError, Exit
from pushsdk.cli.settings import SettingValue, checked, read_key, resolve

SECRET = "s3cret-key"
URL = "https://push.example/api"


@pytest.fixture
def home(tmp_path):
    """A function that writes a file, by default the settings file, to the configuration folder."""

    def write(text, mode=0o600, name="pushsdk/config.toml"):
        file = tmp_path / "home" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    return write


def find(options, variables):
    with mock.patch.dict(os.environ, variables, clear=True):
        return module.find(options)


def environ(tmp_path, **variables):
    return {"XDG_CONFIG_HOME": str(tmp_path / "home"), **variables}


def settings_of(options=(), variables=()):
    """Return the settings from these options and variables only."""
    settings, problems = checked(find(dict(options), dict(variables)))
    assert problems == {}
    return settings


def problems_of(options=(), variables=()):
    settings, problems = checked(find(dict(options), dict(variables)))
    assert settings is None
    return problems


# -- precedence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("base_url", f"{URL}/", "base_url", URL),
        ("timeout", "7.5", "timeout", Timeout(total=7.5)),
        ("attempt_timeout", "20", "timeout", Timeout(attempt=20.0)),
        ("retry", "at-least-once", "retry", RetryPolicy.at_least_once()),
        ("in_flight", "3", "limits", Limits(in_flight=3)),
        ("rate", "100", "rate", Rate(users_per_second=100)),
        ("requests_per_second", "2", "rate", Rate(requests_per_second=2)),
        ("allow_insecure", "true", "allow_insecure", True),
        ("proxy", "http://proxy.example:3128", "proxy", Secret.of("http://proxy.example:3128")),
    ],
)
def test_every_setting_is_read_from_a_variable_and_from_the_file(tmp_path, home, name, text, option, value):
    base = {"PUSHSDK_BASE_URL": URL, "PUSHSDK_API_KEY": SECRET}
    assert settings_of(variables={**base, f"PUSHSDK_{name.upper()}": text})[option] == value
    home(f"{name} = {text}" if text == "true" or text.replace(".", "").isdigit() else f'{name} = "{text}"')
    base.pop("PUSHSDK_BASE_URL" if name == "base_url" else "", None)
    assert settings_of(variables=environ(tmp_path, **base))[option] == value


def test_resolve_reads_the_environment_and_raises_the_first_problem(monkeypatch):
    monkeypatch.setenv("PUSHSDK_APIKEY", SECRET)
    ignored = "PUSHSDK_APIKEY is not .* so it is ignored: did you mean PUSHSDK_API_"
    with pytest.raises(ConfigurationError, match=rf"no Api-Key: set PUSHSDK_API_KEY(?s:.*){ignored}"):
        resolve({"base_url": URL})
    monkeypatch.setenv("PUSHSDK_API_KEY", SECRET)
    assert resolve({"base_url": URL})["api_key"] == Secret.of(SECRET)


def test_a_bad_option_is_a_usage_error_and_a_bad_variable_a_configuration_error(monkeypatch):
    monkeypatch.setenv("PUSHSDK_API_KEY", SECRET)
    with pytest.raises(CommandError, match=r"^--rate:? ") as refused:
        resolve({"base_url": URL, "rate": -1.0})
    assert refused.value.code == Exit.USAGE
    monkeypatch.setenv("PUSHSDK_RATE", "-1")
    with pytest.raises(ConfigurationError, match=r"^PUSHSDK_RATE:? "):
        resolve({"base_url": URL})


# -- profiles ---------------------------------------------------------------------------------------------------------

PROFILES = f"""
base_url = "{URL}"
timeout = 1
[profiles.staging]
timeout = 2
"""


def test_options_win_over_the_profile_and_the_profile_over_variables_and_the_rest_of_the_file(tmp_path, home):
    home(PROFILES)
    variables = environ(tmp_path, PUSHSDK_TIMEOUT="3")
    assert find({"profile": "staging", "timeout": 4.0}, variables)["timeout"].value == 4.0
    staging = find({"profile": "staging"}, variables)
    assert staging["timeout"].value == 2
    assert staging["base_url"].value == URL
    assert staging["timeout"].source.endswith("config.toml: profiles.staging.timeout")
    assert find({}, variables)["timeout"].value == "3"
    assert find({}, {**variables, "PUSHSDK_PROFILE": "staging"})["timeout"].value == 2


# -- the settings file ------------------------------------------------------------------------------------------------


def test_a_named_file_replaces_the_users_own_which_is_in_the_home_folder_or_in_appdata(tmp_path, home, monkeypatch):
    home("timeout = 1")
    other = home("timeout = 2", name="other.toml")
    for options, variables in (({"config": other}, {}), ({}, {"PUSHSDK_CONFIG": str(other)})):
        assert find(options, environ(tmp_path, **variables))["timeout"].value == 2
    home("timeout = 3", name=".config/pushsdk/config.toml")
    assert find({}, {"HOME": str(tmp_path / "home")})["timeout"].value == 3
    monkeypatch.setattr(module.sys, "platform", "win32")
    assert find({}, {"APPDATA": str(tmp_path / "home")})["timeout"].value == 1


HOSTILE = f'base_url = "https://evil.example"\napi_key_command = "{sys.executable} -c \'open(\\"ran\\", \\"w\\")\'"\n'
NAMES = ("config.toml", "pushsdk/config.toml", ".config/pushsdk/config.toml", ".env")


@pytest.mark.parametrize("variables", [{}, {"XDG_CONFIG_HOME": "", "HOME": "."}, {"XDG_CONFIG_HOME": "."}])
def test_a_hostile_file_in_the_working_directory_changes_nothing(tmp_path, monkeypatch, home, variables):
    for name in NAMES:
        home(HOSTILE, name=name)
    monkeypatch.chdir(tmp_path / "home")
    assert find({}, variables) == {}


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "variables", "text"),
    [
        ({"timeout": 0.0}, {}, "--timeout must be a number of seconds greater than 0"),
        ({}, {"PUSHSDK_TIMEOUT": "nan"}, "PUSHSDK_TIMEOUT must be a number of seconds"),
        ({}, {"PUSHSDK_RETRY": "never"}, "PUSHSDK_RETRY must be 'safe', 'collapsible', 'at-least-once' or 'none'"),
        ({}, {"PUSHSDK_ALLOW_INSECURE": "perhaps"}, "PUSHSDK_ALLOW_INSECURE must be true or false"),
        ({"base_url": "http://push.example"}, {}, "--base-url: base_url must not be plain http"),
        ({}, {"PUSHSDK_BASE_URL": ""}, "PUSHSDK_BASE_URL: base_url must be an absolute URL"),
        ({"api_key_file": "none"}, {}, "--api-key-file: can't read"),
        ({"api_key_command": "'"}, {}, "--api-key-command: must be a command"),
        ({"api_key_command": "/no-such-command"}, {}, "--api-key-command: can't run the command: No such file"),
        ({"api_key_command": "false"}, {}, "--api-key-command: the command failed with exit code 1"),
    ],
)
def test_an_error_names_the_source(options, variables, text):
    problems = problems_of(options, {"PUSHSDK_BASE_URL": URL, **variables})
    assert any(problem.startswith(text) for problem in problems.values()), problems


def test_a_value_of_a_wrong_type_is_an_error_with_file_and_name(tmp_path, home):
    home("timeout = true\nbase_url = 5")
    problems = problems_of(variables=environ(tmp_path, PUSHSDK_API_KEY=SECRET))
    assert problems["timeout"].endswith("config.toml: timeout must be a number of seconds greater than 0; got True")
    assert problems["base_url"].endswith("config.toml: base_url must be a str; got int")


STAGING = {"profile": "staging"}


@pytest.mark.parametrize(
    ("text", "options", "variables", "says"),
    [
        ("", STAGING, {}, r"no profile has the name 'staging'; \S+config.toml has none: add a table \[profiles.NAME\]"),
        ("profiles.staging = 1", STAGING, {}, "profiles must be tables"),
        ("[profiles.staging]\ntimeut = 1", STAGING, {}, "unknown setting 'timeut'"),
        ("", {"config": Path("none.toml")}, {}, r"none\.toml: No such file"),
        ("", {}, {"PUSHSDK_CONFIG": "none.toml"}, r"^PUSHSDK_CONFIG: none\.toml: No such file"),
        ("timeout = \n", {}, {}, r"config.toml: not a TOML file \(at line 1"),
        ("timeut = 1", {}, {}, r"config.toml: unknown setting 'timeut': did you mean timeout\?"),
        ("[staging]\nretry = 1", {}, {}, r"unknown setting 'staging': a profile is written \[profiles\.staging\]"),
        ("\xff", {}, {}, "config.toml: not a TOML file"),
        ("a = " + "[" * 5000, {}, {}, "config.toml: not a TOML file"),
        (
            "",
            {},
            dict.fromkeys(["PUSHSDK_API_KEY", "PUSHSDK_API_KEY_FILE"], "x"),
            "twice, by PUSHSDK_API_KEY and by PUS",
        ),
    ],
)
def test_unusable_settings_are_refused(tmp_path, home, text, options, variables, says):
    home("").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=says):
        find(options, environ(tmp_path, **variables))


# -- the key ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_key_in_a_file_that_other_users_can_read_is_refused(tmp_path, home, mode):
    home(f'api_key = "{SECRET}"', mode)
    with pytest.raises(ConfigurationError, match="only its owner may read a file with an api_key: run chmod 600"):
        find({}, environ(tmp_path))


def test_relative_paths_of_the_settings_file_start_from_its_folder(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home(f"\ufeff{SECRET}\r\n", name="pushsdk/key")
    (tmp_path / "key").write_text("another")
    home(f'\ufeffbase_url = "{URL}"\napi_key_file = "key"')
    assert settings_of(variables=environ(tmp_path))["api_key"] == Secret.of(SECRET)
    command = f"{sys.executable} -c 'print(open(chr(107)+chr(101)+chr(121)).read())'"
    home(SECRET, name="pushsdk/key")
    home(f'base_url = "{URL}"\napi_key_command = """{command}"""')
    assert settings_of(variables=environ(tmp_path))["api_key"] == Secret.of(SECRET)


def test_a_key_command_runs_without_shell_and_input(tmp_path):
    code = "import sys; print(sys.argv[1] + str(len(sys.stdin.read())))"
    command = f'{sys.executable} -c "{code}" "$HOME;a"'
    assert read_key("api_key_command", SettingValue(command, "", "option", tmp_path)) == Secret.of("$HOME;a0")


def test_a_key_command_that_hangs_times_out(monkeypatch):
    monkeypatch.setattr("pushsdk.cli.settings._COMMAND_TIMEOUT", 0.05)
    with pytest.raises(ConfigurationError, match="did not end within"):
        read_key("api_key_command", SettingValue(f"{sys.executable} -c 'import time; time.sleep(9)'", "", "option"))


def test_the_key_of_a_higher_source_wins_whatever_its_setting(tmp_path, home):
    home('api_key_file = "no such file"')
    settings = find({}, environ(tmp_path, PUSHSDK_API_KEY=SECRET))
    assert settings["api_key"].source == "PUSHSDK_API_KEY"
    assert "api_key_file" not in settings
    settings = find({"api_key_command": "true"}, environ(tmp_path, PUSHSDK_API_KEY=SECRET))
    assert "api_key" not in settings


def test_no_text_shows_the_key_or_the_password_of_the_proxy(tmp_path, home):
    settings = settings_of({"base_url": URL, "proxy": "http://u:passw0rd@p.example"}, {"PUSHSDK_API_KEY": SECRET})
    text = repr(settings) + repr(find({}, {"PUSHSDK_API_KEY": SECRET}))
    for bad in (f"{SECRET} with spaces", SECRET * 1000):
        text += repr(problems_of({"base_url": URL}, {"PUSHSDK_API_KEY": bad}))
    home(f'api_key = "{SECRET}')
    with pytest.raises(ConfigurationError) as failed:
        find({}, environ(tmp_path))
    text += str(failed.value)
    assert SECRET not in text
    assert "passw0rd" not in text
