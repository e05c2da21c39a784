"""``pushsdk claims list``, ``count`` and ``release``."""

import asyncio
import json
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
from support.claim_puts import WEEK, key_of
from support.servers import postgres_server, redis_server

from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims import Claim, ObjectClaims, PostgresClaims, Put, RedisClaims, SqliteClaims

HOUR = 3600.0


def fill(store, *ages):
    """Store sends to two users, one accepted and one claimed, of these ages in seconds."""

    async def fill():
        puts = []
        for number, age in enumerate(ages):
            states = UserStates(2)
            states.set(0, 1, UserStatus(UserState.ACCEPTED, 204))
            states.set(1, 2, UserStatus(UserState.CLAIMED))
            record = ClaimRecord(
                fingerprint="f" * 64, claimed_at=time.time() - age, users=msgspec.Raw(states.to_json())
            )
            puts.append(Put(key_of(number), Claim(key_of(number)[:32], record.encode())))
        async with store:
            await store.put(puts, WEEK)

    asyncio.run(fill())


@pytest.fixture
def address(tmp_path):
    """A store of three sends: claimed 100 s, 3 h and 2 h ago."""
    fill(SqliteClaims(tmp_path / "c"), 100.0, 3 * HOUR, 2 * HOUR)
    return f"sqlite:{tmp_path / 'c'}"


def counts(command, address, *words):
    result = command("claims", "count", "--claims", address, "--json", *words)
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def test_claimed_sends_are_listed_with_the_newest_last(command, address):
    result = command("claims", "list", "--claims", address)
    head, *lines = result.out.splitlines()
    assert (result.code, result.err, head.split()) == (0, "", ["claimed", "at", "age", "users", "key"])
    assert [line.split()[2:] for line in lines] == [["1", key_of(number)] for number in (1, 2, 0)]


def test_claimed_sends_of_an_age_are_listed_as_json_lines(command, address):
    result = command("claims", "list", "--claims", address, "--older-than", "150m", "--json")
    row = json.loads(result.out)
    assert (row["key"], row["users"], round(row["age"] / HOUR)) == (key_of(1), 1, 3)
    assert row["claimed_at"].endswith("Z")
    assert command("claims", "list", "--claims", address, "--older-than", "2d").err == "nothing is claimed\n"


def test_sends_and_users_are_counted(command, address):
    assert counts(command, address) == {"sends": 3, "users": 3}
    assert counts(command, address, "--older-than", "150m") == {"sends": 1, "users": 1}
    assert command("claims", "count", "--claims", address).out == "sends  3\nusers  3\n"


def test_claims_older_than_an_age_are_released(command, address):
    result = command("claims", "release", "--claims", address, "--older-than", "1h", "--yes")
    assert result == (0, "released 2 users of 2 sends\n", "")
    assert counts(command, address) == {"sends": 1, "users": 1}
    result = command("claims", "release", "--claims", address, "--older-than", "1h", "--yes")
    assert result == (0, "released 0 users of 0 sends\n", "")


def test_keys_are_released_and_unclaimed_keys_are_named(command, address):
    keys = (key_of(0), key_of(0), key_of(9))
    result = command("claims", "release", *keys, "--claims", address, "--yes")
    assert result == (1, "released 1 user of 1 send\n", f"{key_of(9)}: nothing is claimed\n")
    assert command("claims", "release", key_of(1), "--claims", address, "--yes").code == 0


def test_a_claim_that_changes_during_the_question_stays(command, address, monkeypatch):
    real = SqliteClaims.put

    async def put(store, puts, ttl):
        other = Put(puts[0].key, Claim("e" * 32, b"{}"), puts[0].expected)
        await real(store, [other], WEEK)
        return await real(store, puts, ttl)

    monkeypatch.setattr(SqliteClaims, "put", put)
    result = command("claims", "release", "--claims", address, "--older-than", "1h", "--yes")
    assert (result.code, result.out) == (1, "released 1 user of 1 send\n")
    assert result.err == "1 send changed meanwhile and stayed claimed: list the claims again\n"


def test_without_a_terminal_a_release_needs_yes(command, address):
    result = command("claims", "release", "--claims", address, "--older-than", "1s")
    assert (result.code, result.out) == (2, "")
    assert "may get the push a second time" in result.err
    assert "pass --yes. Nothing was changed." in result.err
    assert counts(command, address)["sends"] == 3


@pytest.mark.parametrize(("answer", "code", "count"), [("y", 0, 0), ("n", 1, 3)])
def test_on_a_terminal_a_release_asks(command, address, monkeypatch, answer, code, count):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: f"{answer}\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    result = command("claims", "release", "--claims", address, "--older-than", "1s")
    assert (result.code, "nothing was changed" in result.err) == (code, code == 1)
    assert counts(command, address)["sends"] == count


# -- the store --------------------------------------------------------------------------------------------------------


def test_a_variable_names_a_store_on_a_server(command, monkeypatch, objects_url):
    with redis_server() as redis, postgres_server() as postgres:
        fill(ObjectClaims(objects_url), 1.0, 2.0, 3.0)
        fill(RedisClaims(redis.url, prefix="jobs:"), 1.0)
        fill(PostgresClaims(postgres.url, table="jobs"), 1.0, 2.0)
        places = ((redis.url, "--prefix=jobs:", 1), (postgres.url, "--table=jobs", 2), (objects_url, "--prefix=x", 3))
        for url, option, sends in places:
            monkeypatch.setenv("PUSHSDK_CLAIMS", url)
            result = command("claims", "count", option, "--json")
            assert (result.code, json.loads(result.out)["sends"]) == (0, sends)


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("sqlite:/no/store", 2, "/no/store: no such claim store"),
        (
            "mysql://me:s3cret@host",
            2,
            "sqlite:PATH, redis://HOST, postgresql://HOST/DATABASE or s3://BUCKET/PREFIX; got mysql:...",
        ),
        ("redis://:s3cret@host:port", 2, "the URL of a Redis must be like"),
        ("redis://:s3cret@127.0.0.1:1", 4, "the claim store failed (ConnectionError)"),
        ("s3://key:s3cret@bucket", 2, "the URL of an object store must be like"),
        ("s3://another", 4, "the claim store failed: the bucket or container does not exist: create it"),
        ("sqlite:/", 4, "the file of the claim store can't be used: it is a folder"),
    ],
)
def test_an_unusable_store_is_an_error_without_its_password(command, monkeypatch, objects_url, address, code, text):
    monkeypatch.setenv("PUSHSDK_CLAIMS", address)
    result = command("claims", "list")
    assert (result.code, result.out) == (code, "")
    assert text in result.err
    assert "s3cret" not in result.err


def test_the_help_does_not_show_the_address_of_the_store(command, monkeypatch):
    monkeypatch.setenv("PUSHSDK_CLAIMS", "redis://:s3cret@host")
    result = command("claims", "list", "--help")
    assert (result.code, "s3cret" in result.out) == (0, False)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((key_of(1), "--older-than", "1h"), "pass either keys or --older-than"),
        (("job-42",), "job-42: a key must be 64 hexadecimal digits"),
        (("--older-than", "soon"), "older-than"),
    ],
)
def test_a_release_needs_valid_keys_or_an_age(command, address, words, text):
    result = command("claims", "release", *words, "--claims", address, "--yes")
    assert result.code == 2
    assert text in result.err
