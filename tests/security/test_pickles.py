"""Pickles and copies: values and errors can be copied whole; clients, keys and connections can't."""

import copy
import pickle

import msgspec
import pytest

import pushsdk
from pushsdk import (
    UNSET,
    AsyncPushClient,
    Attempt,
    MobilePush,
    Outcome,
    PushClient,
    PushError,
    RetryPolicy,
    SendAbandoned,
)
from pushsdk._core.errors import Advice
from pushsdk._core.secret import Secret
from pushsdk.claims import MemoryClaims, PostgresClaims, RedisClaims, SqliteClaims
from pushsdk.spark import DirectoryClaims

ATTEMPT = Attempt(outcome=Outcome.REJECTED, status=400, reason="HTTP 400", seconds=0.1)
PUBLIC = [getattr(pushsdk, name) for name in pushsdk.__all__]
STRUCTS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
ERRORS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, PushError)]
WAYS = pytest.mark.parametrize("way", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])


VALUES = {
    RetryPolicy: RetryPolicy(statuses={500: Outcome.REJECTED}, retry_on={408}),
    MobilePush: MobilePush(title={"en": "t"}, badge_count=0),
    SendAbandoned: SendAbandoned(outcome=Outcome.UNKNOWN, user_ids=("u",), attempts=(ATTEMPT,)),
}


def value_of(kind):
    """A value of this kind; a struct does not check what it is made of."""
    return VALUES.get(kind) or kind(**{field.name: None for field in msgspec.structs.fields(kind) if field.required})


@WAYS
def test_every_struct_is_frozen_and_comes_back_equal(way):
    for value in map(value_of, STRUCTS):
        assert way(value) == value
        assert type(way(value)) is type(value)
        for name in value.__struct_fields__[:1]:
            with pytest.raises(AttributeError):
                setattr(value, name, None)


FIELDS = {
    "status": 429,
    "headers": {"Retry-After": "7"},
    "body": b"slow down",
    "retry_after": 7.0,
    "external_id": "spring-1",
    "outcomes": {"user-4711": Outcome.UNKNOWN},
}


@WAYS
def test_every_error_comes_back_with_all_it_knows_and_shows_no_user(way):
    for kind in ERRORS:
        error = kind(Advice("what happened", ""), outcome=Outcome.UNKNOWN, attempts=(ATTEMPT,), user_ids=("user-4711",))
        for name, value in FIELDS.items():
            if hasattr(kind, name):
                setattr(error, name, value)
        back = way(error)
        assert type(back) is kind
        assert back.args == error.args
        assert str(back) == "what happened"
        assert vars(back) == vars(error)
        assert back.outcome == Outcome.UNKNOWN
        assert back.attempts == (ATTEMPT,)
        assert back.user_ids == ("user-4711",)
        assert not any(word in f"{error} {error!r} {error.args}" for word in ("4711", "slow down", "spring-1"))


@WAYS
def test_unset_stays_a_singleton(way):
    assert way(MobilePush()).title is UNSET


@WAYS
def test_a_client_or_claim_store_is_not_pickled_or_copied_and_the_error_says_what_to_do(way):
    client = AsyncPushClient("https://push.example", "key")
    for hidden in (client, client.with_options(timeout=1.0), Secret.of("key")):
        with pytest.raises(TypeError):
            way(hidden)
    for made in (
        MemoryClaims(),
        SqliteClaims("claims.db"),
        DirectoryClaims("claims"),
        RedisClaims("redis://host/0"),
        PostgresClaims("postgresql://host/database"),
        PushClient("https://push.example", "key"),
    ):
        with pytest.raises(TypeError, match="make one in each process"):
            way(made)
