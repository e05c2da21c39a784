"""A client and its claim store across a fork: the child gets an error, and neither process hangs."""

import json

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
OBJECTS = "pushsdk.claims.ObjectClaims"
NONE_LEFT = "the claim store was used before a fork, which object stores don't survive: fork first\n1 0\n"


@pytest.mark.parametrize(
    ("kind", "store", "used", "result"),
    [
        *((kind, store, "used", REFUSED) for kind, store in STORES.items()),
        ("redis", STORES["redis"], "unused", "0\n0 1\n"),
        # A client that made its store makes another one in the child.
        ("redis", "", "used", "0\n1 1\n"),
        # No object store is used after a fork if one was used before.
        ("objects", OBJECTS, "used", NONE_LEFT),
        ("objects", "", "used", NONE_LEFT),
        ("objects", OBJECTS, "unused", "0\n0 1\n"),
    ],
)
def test_a_used_store_is_refused_after_a_fork_and_an_unused_store_works(
    kind, store, used, result, request, monkeypatch
):
    url = kind == "objects" or not store
    claims = request.getfixturevalue(f"{kind}_url") if url else place_of(kind, request)
    if store and url:
        claims = {"server": claims}
    with served(monkeypatch) as service:
        completed = run_program(PROGRAM, store, json.dumps(claims, default=str), used)
    assert completed == (0, result, "")
    assert service.users() == {"u": 2}
