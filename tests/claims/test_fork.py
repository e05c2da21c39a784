"""A client and its claim store across a fork: the child gets an error, and neither process hangs."""

import json
import textwrap

import pytest
from support.claim_stores import place_of
from support.programs import run_program
from support.service_thread import served

PROGRAM = """
    import json, os, sys, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    from pushsdk import ConfigurationError, MobilePush, PushClient
    import pushsdk.claims, pushsdk.spark

    claims = json.loads(sys.argv[2])
    if sys.argv[1]:
        claims = eval(sys.argv[1])(**claims)
    client = PushClient(claims=claims)

    def send(job):
        return client.send("u", MobilePush(ios_enabled=True, title={"en": "x"}), idempotency_key=job).already_accepted

    if sys.argv[3] == "used":
        send("before")
    pid = os.fork()
    if not pid:
        try:
            result = send("child")
        except ConfigurationError as error:
            result = error
        client.close()
        os.write(1, f"{result}\\n".encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    os.write(1, f"{send('before')} {send('child')}\\n".encode())
    client.close()
"""
STORES = {
    "sqlite": "pushsdk.claims.SqliteClaims",
    "directory": "pushsdk.spark.DirectoryClaims",
    "redis": "pushsdk.claims.RedisClaims",
    "postgres": "pushsdk.claims.PostgresClaims",
}


REFUSED = "the claim store was used before a fork: make one in each process\n1 0\n"


@pytest.mark.parametrize(
    ("kind", "used", "result"), [*((kind, "used", REFUSED) for kind in STORES), ("redis", "unused", "0\n0 1\n")]
)
def test_a_used_store_is_refused_after_a_fork_and_an_unused_store_works(kind, used, result, request, monkeypatch):
    place = json.dumps(place_of(kind, request), default=str)
    with served(monkeypatch) as service:
        completed = run_program(textwrap.dedent(PROGRAM), STORES[kind], place, used)
    assert completed == (0, result, "")
    assert service.users() == {"u": 2}


def test_a_client_that_owns_its_store_opens_another_one_in_the_child(redis_url, monkeypatch):
    with served(monkeypatch) as service:
        completed = run_program(textwrap.dedent(PROGRAM), "", json.dumps(redis_url), "used")
    assert completed == (0, "0\n1 1\n", "")
    assert service.users() == {"u": 2}


@pytest.mark.parametrize(
    ("store", "used", "result"),
    [
        (store, "used", "the claim store was used before a fork, which object stores don't survive: fork first\n1 0\n")
        for store in ("pushsdk.claims.ObjectClaims", "")
    ]
    + [("pushsdk.claims.ObjectClaims", "unused", "0\n0 1\n")],
)
def test_no_object_store_is_used_after_a_fork_if_one_was_used_before(store, used, result, objects_url, monkeypatch):
    claims = {"server": objects_url} if store else objects_url
    with served(monkeypatch) as service:
        completed = run_program(textwrap.dedent(PROGRAM), store, json.dumps(claims), used)
    assert completed == (0, result, "")
    assert service.users() == {"u": 2}
