"""The checks of a broadcast by Spark before anything is planned."""

import pickle
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from pushsdk import (
    Batching,
    ConfigurationError,
    Limits,
    MessageWarning,
    MobilePush,
    Rate,
    RetryPolicy,
    StopPolicy,
    Timeout,
    ValidationError,
    placeholder,
)
from pushsdk._core.policy import Share
from pushsdk.claims import ClaimStore, MemoryClaims, SqliteClaims
from pushsdk.claims.store import MAX_CLAIM_TTL
from pushsdk.spark import DirectoryClaims, broadcast
from pushsdk.spark._folder import RunFolder
from pushsdk.spark._preflight import check_spark, checked_claims, checked_fields, checked_options, divided
from pushsdk.spark._tasks import of_task, trouble

KEY = "a-key-that-nobody-may-see"
URL = "https://push.example/api"


def sending(**value):
    return checked_options(**{"base_url": URL, "claims": MemoryClaims, **value})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"api_key": KEY}, "api_key must be a callable here"),
        ({"base_url": "http://push.example"}, "base_url"),
        ({"proxy": "ftp://proxy"}, "proxy"),
    ],
)
def test_an_option_that_no_executor_could_use_is_an_error(options, text):
    with pytest.raises(ConfigurationError, match=text) as error:
        sending(**options)
    assert KEY not in str(error.value)


def test_an_option_that_executors_do_not_have_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_event'"):
        broadcast(None, MobilePush(), "run", on_event=None)


def test_base_url_defaults_to_the_environment_of_the_driver(monkeypatch):
    monkeypatch.setenv("PUSHSDK_BASE_URL", "https://elsewhere.example/")
    assert sending(base_url=None)["base_url"] == "https://elsewhere.example"
    monkeypatch.delenv("PUSHSDK_BASE_URL")
    with pytest.raises(ConfigurationError, match="base_url"):
        sending(base_url=None)


def test_every_option_reaches_the_executor():
    options = {
        "retry": RetryPolicy.safe(max_delay=9.0),
        "timeout": Timeout(total=1.0),
        "batching": Batching(max_users=50),
        "limits": Limits(in_flight=3),
        "rate": Rate(users_per_second=10.0),
        "headers": {"X-Team": "growth"},
        "proxy": "http://proxy.example:8080",
        "stop_policy": StopPolicy.off(),
        "claims": dict,
        "api_key": len,
    }
    settings = sending(**options)
    assert settings == {"base_url": URL, **options}
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_driver_says_which_fields_of_the_policy_a_run_does_not_use():
    with pytest.warns(MessageWarning, match="a run does not use RetryPolicy.max_attempts: "):
        sending(retry=RetryPolicy.none())


def test_the_rate_is_divided_among_the_tasks():
    settings = divided(sending(rate=Rate(requests_per_second=100.0, users_per_second=None)), 8, 1000)
    assert of_task(settings, 0)["rate"] == Share(requests_per_second=12.5, count=8)
    assert of_task(pickle.loads(pickle.dumps(settings)), 3)["rate"] == Share(requests_per_second=12.5, index=3, count=8)
    assert of_task(divided(sending(), 8, 1000), 3)["rate"] == Share(index=3, count=8)


def test_larger_chunks_of_an_earlier_plan_are_still_sent():
    assert divided(sending(batching=Batching(max_users=10)), 1, 1000)["batching"].max_users == 1000
    assert divided(sending(), 1, 100)["batching"].max_users == Batching().max_users


# -- Spark ----------------------------------------------------------------------------------------------------------


class Session:
    """As much of a session as is looked at. Of Spark Connect before 4.3, it can't make another."""

    def __init__(self, settings):
        self.settings = {"spark.master": "spark://somewhere:7077", **settings}

    @property
    def conf(self):
        return SimpleNamespace(getAll=self.settings)


class Running(Session):
    """A session that was asked for with other settings when it was running."""

    def newSession(self):  # noqa: N802 - Spark's name
        return Session({**self.settings, "spark.speculation": "true"})


KEY_SETTING = "spark.executorEnv.PUSHSDK_API_KEY"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"spark.speculation": "True"}, r"Set spark\.speculation=false"),
        ({KEY_SETTING: KEY, "spark.redaction.regex": "secret"}, "event logs"),
        ({KEY_SETTING: KEY, "spark.redaction.regex": "(?i)api_key"}, None),
        ({}, None),
        ({"spark.master": "local[2]", "spark.speculation": "true"}, "speculation"),
    ],
)
def test_settings_that_send_twice_or_show_the_key_are_errors(settings, text):
    session = Session(settings)
    if text is None:
        check_spark(session, MemoryClaims)
        return
    with pytest.raises(ConfigurationError, match=text) as error:
        check_spark(session, MemoryClaims)
    assert KEY not in str(error.value)


def test_a_setting_that_came_too_late_is_not_believed():
    session = Running({"spark.speculation": "false"})
    with pytest.raises(ConfigurationError, match="speculation is on"):
        check_spark(session, MemoryClaims)


@pytest.mark.parametrize("master", ["local[*]", "yarn"])
def test_a_job_that_ends_with_one_failure_is_warned_about(master, caplog):
    session = Session({"spark.master": master, "spark.task.maxFailures": "1"})
    check_spark(session, MemoryClaims)
    assert ("spark.task.maxFailures is 1" in caplog.text) is (not master.startswith("local"))


def test_claims_of_one_machine_are_an_error_on_a_cluster(tmp_path):
    local = Session({"spark.master": "local[2]"})
    several = Session({})
    make = partial(SqliteClaims, tmp_path / "claims.db")
    check_spark(local, make)
    with pytest.raises(ConfigurationError, match="processes of one machine"):
        check_spark(several, make)


def test_a_task_tells_why_it_could_not_send(service, tmp_path):
    def told(token, port):
        return [row["trouble"] for batch in trouble(str(token), "127.0.0.1", port, [None]) for row in batch.to_pylist()]

    port = urlsplit(service.base_url).port
    assert told(tmp_path, port) == [None]
    assert told(tmp_path, 1) == ["no executor can connect to 127.0.0.1:1 (Connection refused)"]
    for each in (port, 1):
        assert "does not see run_dir as this process does" in told(tmp_path / "elsewhere", each)[0]


# -- claims ---------------------------------------------------------------------------------------------------------


def test_claims_are_kept_in_the_run_s_folder_for_a_year(tmp_path):
    make, kind, ttl = checked_claims(None, RunFolder(tmp_path))
    store = pickle.loads(pickle.dumps(make))()
    assert isinstance(store, DirectoryClaims)
    assert repr(store) == f"DirectoryClaims({str(tmp_path / 'claims')!r})"
    assert store.claim_ttl == MAX_CLAIM_TTL
    assert ttl == MAX_CLAIM_TTL
    assert kind == "DirectoryClaims of the run"
    assert store.timeout == 30.0


def test_another_store_is_identified_by_its_kind(tmp_path):
    make = partial(SqliteClaims, tmp_path / "claims.db", claim_ttl=86400.0)
    assert checked_claims(make, RunFolder(tmp_path)) == (make, "SqliteClaims", 86400.0)
    with pytest.raises(ConfigurationError, match="claim_ttl must be a day or more here"):
        checked_claims(partial(SqliteClaims, tmp_path / "claims.db", claim_ttl=86399.0), RunFolder(tmp_path))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (MemoryClaims(), "claims must be a function"),
        (dict, "must be a claim store"),
        (MemoryClaims, "MemoryClaims ends with its process"),
        (ClaimStore, None),
    ],
)
def test_a_value_that_is_not_a_claim_store_is_an_error(value, text, tmp_path):
    with pytest.raises(TypeError if text is None else ConfigurationError, match=text):
        checked_claims(value, RunFolder(tmp_path))


# -- fields ---------------------------------------------------------------------------------------------------------

MESSAGE = MobilePush(title={"en": f"Hello {placeholder('name', 'you')}"}, body={"en": placeholder("town", "there")})
COLUMNS = ["user_id", "town", "name", "age"]


@pytest.mark.parametrize(
    ("personal", "fields", "wanted"),
    [
        (None, None, ()),
        ("placeholders", None, ("town", "name")),
        ("custom_fields", None, ("town", "name")),
        ("custom_fields", ["age", "town"], ("age", "town")),
        ("placeholders", ("name",), ("name",)),
    ],
)
def test_the_fields_are_those_named_or_those_of_the_placeholders(personal, fields, wanted):
    assert checked_fields(MESSAGE, personal, fields, COLUMNS) == wanted


@pytest.mark.parametrize(
    ("personal", "fields", "text"),
    [
        ("text", None, "personal must be"),
        (None, ["age"], "fields needs personal="),
        ("placeholders", "age", "must be a list of different names"),
        ("placeholders", [], "must be a list of different names"),
    ],
)
def test_wrong_fields_are_an_error(personal, fields, text):
    with pytest.raises(ConfigurationError, match=text):
        checked_fields(MESSAGE, personal, fields, COLUMNS)


def test_a_message_that_names_no_column_or_is_none_is_an_error():
    with pytest.raises(ConfigurationError, match="no placeholder of the message names a column"):
        checked_fields({"title": {"en": "Hello"}}, "placeholders", None, COLUMNS)
    with pytest.raises(ValidationError, match="message"):
        checked_fields(7, "placeholders", None, COLUMNS)
