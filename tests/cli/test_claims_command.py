"""``pushsdk claims list``, ``count`` and ``release``."""

import asyncio
import json
import re
import sys
import time
from hashlib import sha256
from types import SimpleNamespace

import pytest
from support.claim_puts import WEEK, key_of, put
from support.servers import postgres_server, redis_server

from pushsdk import MobilePush, PushClient
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState, UserStates, UserStatus
from pushsdk.claims import Claim, ObjectClaims, PostgresClaims, Put, RedisClaims, SqliteClaims

HOUR = 3600.0
MISSING = "not in the claim store: is the key right? Its job may not have begun, or its claim has expired"


def fill(store, *ages, state=UserState.CLAIMED, **fields):
    """Store sends to two users, one accepted and one claimed, of these ages in seconds."""
    states = UserStates(2)
    states.set(0, 1, UserStatus(UserState.ACCEPTED, 204, "\x1b[2J"))
    states.set(1, 2, UserStatus(state))

    async def filled():
        async with store:
            for number, age in enumerate(ages):
                users = states.stored()
                record = ClaimRecord(fingerprint="", claimed_at=time.time() - age, users=users, **fields)
                await put(store, Claim(key_of(number)[:32], record.encode()), key=key_of(number))

    asyncio.run(filled())


@pytest.fixture
def address(tmp_path):
    """A store of three sends: claimed 100 s, 3 h and 2 h ago."""
    fill(SqliteClaims(tmp_path / "a@b"), 100.0, 3 * HOUR, 2 * HOUR)
    return f"sqlite:{tmp_path / 'a@b'}"


def counts(command, address, words=""):
    result = command(f"claims count --json {words} --claims", address)
    assert result.code == 0
    assert result.err == ""
    return json.loads(result.out)


def test_claimed_sends_are_listed_with_the_oldest_first_and_what_to_do(command, address, monkeypatch):
    result = command("claims list --claims", address)
    head, *lines = result.out.splitlines()
    assert result.code == 0
    assert head == "claimed at                  age    users  job"
    advice = f"arrived:  pushsdk claims release --accepted {key_of(1)[:12]} --claims {address}"
    assert f"\nif the push {advice}  (" in result.err
    shown = command("claims show", key_of(1), "--claims", address)
    assert shown.err == result.err
    assert f"{advice} --prefix x  (" in command("claims list --prefix x --claims", address).err
    monkeypatch.setenv("PUSHSDK_CLAIMS", address)
    assert "--claims" not in command("claims list").err
    assert "CLAIMED   1  in doubt: its process died" in shown.out
    assert "\ufffd[2J\n" in shown.out, "nothing that is stored steers the terminal"
    assert [line.split()[2:] for line in lines] == [["1", key_of(number)] for number in (1, 2, 0)]


def test_claimed_sends_of_an_age_are_listed_as_json_lines(command, address):
    result = command("claims list --older-than 150m --json --claims", address)
    row = json.loads(result.out)
    assert row["key"] == row["job"] == key_of(1)
    assert row["users"] == 1
    assert round(row["age"] / HOUR) == 3
    told = command("claims list --older-than 2d --key nobody --claims", address).err
    assert told == f"found no claimed sends\n--key nobody: {MISSING}\n"


def test_sends_and_users_are_counted(command, address):
    assert counts(command, address, "--older-than 150m") == {"sends": 1, "users": 1}
    assert command("claims count --claims", address).out == "sends  3\nusers  3\n"


@pytest.mark.usefixtures("service")
def test_a_claim_is_shown_by_the_key_of_its_job_by_its_hash_or_by_the_first_digits(command, address):
    keys = "order-42", "order-43"
    with PushClient(claims=address) as client:
        for key in keys:
            client.send("ann", MobilePush(title={"en": key}, ios_enabled=True), idempotency_key=key)
    (digest, _), shown = [sha256(key.encode()).hexdigest() for key in keys], []
    for words in ("--key order-42", digest, digest[:12], f"{digest[:12]} --key order-42"):
        shown.append(command(f"claims show {words} --claims", address))
    assert {(result.code, result.err) for result in shown} == {(0, "")}
    assert all(result.out.startswith(digest) for result in shown)
    assert re.fullmatch(rf"{digest} \(--key order-42\), claimed 0:0.*Z\nACCEPTED  1\n", shown[0].out)
    result = command("claims release --yes --key order-42 --claims", address)
    assert result.code == 1
    assert result.err == ""
    assert result.out.endswith("Z\nACCEPTED  1\nreleased 0 users of 0 sends\n")
    rows = command("claims show --key order-43 --key order-42 --claims", address, "--json").out
    assert [json.loads(row)["states"][0]["users"] for row in rows.splitlines()] == [1, 1]
    assert command("claims show --key order-42 --key order-44 --claims", address).code == 1


def test_what_another_program_has_stored_is_no_claim(command, address):
    async def store():
        async with SqliteClaims(address.removeprefix("sqlite:")) as claims:
            await put(claims, Claim(key_of(7)[:32], b"garbage"), key=key_of(7))

    asyncio.run(store())
    result = command("claims show", key_of(7), "--claims", address)
    assert result == (0, "", f"{key_of(7)}: what is stored there is no claim of this version\n")


@pytest.mark.parametrize(
    ("option", "verb", "state"), [("", "released", "PENDING"), ("--accepted", "settled", "ACCEPTED")]
)
def test_keys_are_released_and_unclaimed_keys_are_named(command, address, option, verb, state):
    keys = (key_of(0), key_of(0), key_of(9))
    result = command(f"claims release --yes {option} --claims", address, *keys)
    assert result == (1, f"{verb} 1 user of 1 send\n", f"{key_of(9)}: {MISSING}\n")
    assert f"\n{state}" in command("claims show", key_of(0), "--claims", address).out
    assert command("claims release --yes --claims", address, key_of(1)).code == 0


@pytest.mark.parametrize(("age", "chosen"), [(9.0, "--older-than=1s"), (-1e9, key_of(0))])
def test_a_send_that_may_be_in_flight_stays_claimed_unless_forced(command, tmp_path, age, chosen):
    fill(SqliteClaims(tmp_path / "c"), age, sending_until=time.time() + 900 + abs(age))
    line = f"claims release --yes --accepted --claims sqlite:{tmp_path / 'c'}"
    held = command(line, chosen)
    assert held.code == 1
    assert re.match(f"{key_of(0)[:12]} may be in flight for [0-9]{{3}} s more: wait, or pass --force", held.err)
    shown = command("claims show --claims", line.split()[-1], key_of(0))
    assert "CLAIMED   1  may be in flight for" in shown.out
    listed = command("claims list --claims", line.split()[-1])
    assert shown.err + listed.err == "", "release would refuse what an advice names"
    assert command(line, "--force", key_of(0)) == (0, "settled 1 user of 1 send\n", "")


def test_a_send_with_an_unknown_outcome_is_released_at_once(command, tmp_path):
    fill(SqliteClaims(tmp_path / "c"), 9.0, state=UserState.UNKNOWN, sending_until=time.time() + 900)
    assert command(f"claims release --yes --claims sqlite:{tmp_path / 'c'}", key_of(0)).code == 0


def test_a_claim_that_changes_during_the_question_stays(command, address, monkeypatch):
    real = SqliteClaims.put

    async def put_late(store, puts, ttl):
        other = Put(puts[0].key, Claim("e" * 32, b"{}"), puts[0].expected)
        await real(store, [other], WEEK)
        return await real(store, puts, ttl)

    monkeypatch.setattr(SqliteClaims, "put", put_late)
    result = command("claims release --older-than 1h --yes --claims", address)
    changed = "1 send changed meanwhile and stayed claimed: list the claims again\n"
    assert result == (1, "released 1 user of 1 send; 1 send stayed claimed\n", changed)


@pytest.mark.parametrize(
    ("answer", "code", "count", "text"),
    [("y", 0, 0, ""), ("n", 1, 3, "nothing was changed"), (None, 2, 3, "pass --yes. Nothing was changed.")],
)
def test_a_release_asks_and_without_a_terminal_needs_yes(command, address, monkeypatch, answer, code, count, text):
    terminal = SimpleNamespace(isatty=lambda: answer is not None, readline=lambda: f"{answer}\n")
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", terminal.isatty)
    result = command("claims release --older-than 1s --claims", address)
    assert result.code == code
    assert text in result.err
    assert "may get the push a second time" in result.err
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
            result = command("claims count", option, "--json")
            assert result.code == 0
            assert json.loads(result.out)["sends"] == sends


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("sqlite:/no/store", 2, "/no/store does not exist: is the path right? The first send"),
        ("claims.db", 2, "for a file, sqlite:claims.db"),
        ("memory:", 2, "no claims are kept at memory:, which ends with its process; use sqlite:PATH"),
        ("redis://:s3cret@host:port", 2, "the URL of a Redis must be like"),
        (
            "redis://:s3cret@127.0.0.1:1",
            4,
            "redis://***@127.0.0.1:1: the claim store failed (ConnectionError: Connection refused; is the store up",
        ),
        ("s3://key:s3cret@bucket", 2, "the URL of an object store must be like"),
        (
            "s3://another",
            4,
            "the claim store failed (ObjectStoreError: the bucket or container does not exist: create it",
        ),
        ("sqlite:/", 4, "the file of the claim store can't be used: it is a folder"),
    ],
)
def test_an_unusable_store_is_an_error_without_its_password(command, monkeypatch, objects_url, address, code, text):
    monkeypatch.setenv("PUSHSDK_CLAIMS", address)
    result = command("claims list")
    assert result.code == code
    assert result.out == ""
    assert text in result.err
    assert "s3cret" not in result.err


def test_the_help_does_not_show_the_address_of_the_store(command, monkeypatch):
    monkeypatch.setenv("PUSHSDK_CLAIMS", "redis://:s3cret@host")
    result = command("claims list --help")
    assert result.code == 0
    assert "s3cret" not in result.out
