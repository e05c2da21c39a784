"""Properties of each store: files, servers, configuration and refusals."""

import asyncio
import errno
import gc
import logging
import os
import sqlite3
import stat
import sys
import time
from contextlib import closing

import asyncpg
import pytest
import redis
from redis.asyncio import Redis, RedisCluster
from support.claim_puts import KEY, ONE, TWO, WEEK, key_of, put
from support.servers import postgres_server, redis_server
from support.shaky_claims import HELLO, ShakyClaims, deliver
from support.virtual_time import virtual

from pushsdk import ClaimStoreError, ConfigurationError
from pushsdk.claims import Claim, ClaimStore, MemoryClaims, ObjectClaims, PostgresClaims, Put, RedisClaims, SqliteClaims
from pushsdk.claims import postgres as postgres_module
from pushsdk.claims import sqlite as sqlite_module
from pushsdk.claims.store import LoopGuard
from pushsdk.spark import DirectoryClaims
from pushsdk.testing import FakeService

REDIS = "redis://localhost"
POSTGRES = "postgresql://localhost"


# -- all stores --------------------------------------------------------------------------------------------------------

MAKERS = [
    MemoryClaims,
    lambda **options: SqliteClaims("x.claims", **options),
    lambda **options: DirectoryClaims("x.claims", **options),
    lambda **options: RedisClaims(REDIS, **options),
    lambda **options: PostgresClaims(POSTGRES, **options),
    lambda **options: ObjectClaims("s3://bucket", **options),
]


@pytest.mark.parametrize("make", MAKERS)
def test_claims_are_kept_for_a_week_by_default(make):
    assert make().claim_ttl == WEEK
    assert make().timeout == 5.0
    assert make(claim_ttl=60).claim_ttl == 60.0
    for wrong in (59.9, 367 * 86400, float("nan"), "60"):
        with pytest.raises(ConfigurationError, match="claim_ttl"):
            make(claim_ttl=wrong)
    if make is not MemoryClaims:
        with pytest.raises(ConfigurationError, match="timeout"):
            make(timeout=0)


@pytest.mark.parametrize(
    ("module", "make", "message"),
    [
        ("redis.asyncio", lambda: RedisClaims(REDIS), r"\(the extra 'redis'\): pip install redis$"),
        ("asyncpg", lambda: PostgresClaims(POSTGRES), r"\(the extra 'postgres'\): pip install asyncpg$"),
        ("obstore.store", lambda: ObjectClaims("s3://bucket"), r"\(the extra 'objects'\): pip install obstore$"),
    ],
)
def test_a_missing_extra_is_named_in_the_error(monkeypatch, module, make, message):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=message):
        make()


async def test_a_store_is_bound_to_one_loop():
    async def check():
        bound.check()

    bound = LoopGuard()
    await check()
    with pytest.raises(ConfigurationError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(check()))


@pytest.mark.parametrize("make", [MAKERS[1], MAKERS[2], MAKERS[4], MAKERS[5]])
async def test_a_closed_store_refuses_operations(make):
    store = make()
    await store.aclose()
    with pytest.raises(ConfigurationError, match="is closed"):
        await put(store, ONE)


@virtual
async def test_expired_claims_do_not_pile_up_in_memory():
    store = MemoryClaims()
    for number in range(1000):
        await put(store, ONE, key=key_of(number), ttl=60.0)
        await asyncio.sleep(1.0)
    assert int(repr(store).removeprefix("MemoryClaims(claims=").removesuffix(")")) <= 60 + 4


# -- SQLite -----------------------------------------------------------------------------------------------------------


async def test_only_the_owner_can_read_the_file(tmp_path):
    old = os.umask(0)
    try:
        async with SqliteClaims(tmp_path / "c") as store:
            await put(store, ONE)
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path)}
    finally:
        os.umask(old)
    assert modes == {"c": 0o600, "c-wal": 0o600, "c-shm": 0o600}
    assert os.listdir(tmp_path) == ["c"]


@pytest.mark.parametrize(("durable", "level"), [(False, "NORMAL"), (True, "FULL")])
async def test_claims_of_one_call_share_a_commit_that_is_synced_if_durable(durable, level, tmp_path, monkeypatch):
    statements = []
    open_database = sqlite_module.open_database

    def traced(*arguments, **options):
        db = open_database(*arguments, **options)
        db.set_trace_callback(statements.append)
        return db

    monkeypatch.setattr(sqlite_module, "open_database", traced)
    async with SqliteClaims(tmp_path / "c", durable=durable) as store:
        await store.put([Put(key_of(number), ONE) for number in range(200)], WEEK)
    assert [statements.count(word) for word in ("BEGIN IMMEDIATE", "COMMIT")] == [1, 1]
    assert f"PRAGMA synchronous = {level}" in statements


async def test_each_put_deletes_twice_as_many_expired_rows_as_it_adds(tmp_path):
    async with SqliteClaims(tmp_path / "c") as store:
        await store.put([Put(key_of(number), ONE) for number in range(10)], -1.0)
        for number in range(10, 15):
            await put(store, ONE, key=key_of(number))
    with closing(sqlite3.connect(tmp_path / "c")) as db:
        assert db.execute("SELECT count(*), min(expires) > ? FROM claims", (time.time(),)).fetchone() == (5, 1)


def _foreign(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE claims(mine)")


def _newer(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id = {sqlite_module.FORMAT.application_id}")
        db.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.mkdir(), "it is a folder, a link or a device"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "it is no claim store, or it is damaged"),
        (lambda path: path.symlink_to("elsewhere"), "it is a folder, a link or a device"),
        (_foreign, "it is no claim store but another program's database"),
        (_newer, "it has version 2"),
    ],
)
async def test_a_foreign_file_is_refused_and_unchanged(tmp_path, spoil, message):
    path = tmp_path / "c"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    async with SqliteClaims(path) as store:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=f"the file of the claim store can't be used: {message}"):
                await put(store, ONE)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("make", [SqliteClaims, DirectoryClaims])
async def test_a_missing_folder_is_a_claim_store_error(tmp_path, make):
    service = FakeService()
    async with make(tmp_path / "no" / "c") as store, service.client(claims=store) as client:
        error = await deliver(client)
        await client.aclose(drain=0)
    assert type(error) is ClaimStoreError
    assert service.requests == []
    assert "No such file or directory" in str(error)
    assert str(error).endswith("; does its folder exist?)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("SQLITE_FULL", "OperationalError: the disk is full: make room, then deliver the job again (SQLITE_FULL)"),
        ("SQLITE_CORRUPT", "OperationalError: it is damaged (SQLITE_CORRUPT)"),
        (OSError(errno.ENOSPC, "", "c"), "OSError: No space left on device 'c'; make room, then deliver the job again"),
    ],
)
@virtual
async def test_a_full_disk_is_named(error, words):
    failure = error if isinstance(error, OSError) else sqlite3.OperationalError("a text")
    if isinstance(failure, sqlite3.Error):
        failure.sqlite_errorname = str(error)

    class Full(ShakyClaims):
        async def put(self, puts, ttl):
            raise failure

    service = FakeService()
    async with service.client(claims=Full()) as client:
        assert str(await deliver(client)) == f"not sent: the claim store failed ({words})"
        await client.aclose(drain=0)
    assert service.requests == []


async def test_a_locked_file_is_an_error_after_the_timeout_and_leaves_no_unretrieved_exception(tmp_path):
    contexts = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    async with SqliteClaims(tmp_path / "c", timeout=0.05) as store:
        await put(store, ONE)
        with closing(sqlite3.connect(tmp_path / "c", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            task = asyncio.create_task(put(store, ONE, key=key_of(1)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(sqlite3.OperationalError):
                await put(store, ONE, key=key_of(2))
        assert await put(store, TWO, ONE) is None
    del task
    gc.collect()
    assert contexts == []


# -- Redis ------------------------------------------------------------------------------------------------------------


def test_an_invalid_redis_or_prefix_is_refused_without_showing_the_value():
    for wrong in ("", "http://localhost", "redis://:s3cret@host:port", None, object()):
        with pytest.raises(ConfigurationError) as excinfo:
            RedisClaims(wrong)
        assert "s3cret" not in f"{excinfo.value!r} {excinfo.value.__cause__!r} {excinfo.value.__context__!r}"
    with pytest.raises(ConfigurationError, match="prefix"):
        RedisClaims(REDIS, prefix="")


def test_a_synchronous_redis_client_and_a_cluster_are_refused():
    with redis.Redis.from_url(REDIS) as wrong, pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        RedisClaims(wrong)
    with pytest.raises(ConfigurationError, match="can't use a Redis Cluster"):
        RedisClaims(RedisCluster.from_url(REDIS))


async def test_any_object_with_the_three_commands_works_as_a_redis():
    class CustomRedis:
        async def eval(self, script, keys, *arguments):
            return [None]

        async def mget(self, names):
            return [None]

        async def scan(self, cursor, *, match, count):
            return 0, [match.removesuffix("*").encode() + KEY.encode()]

    store = RedisClaims(CustomRedis())
    assert await put(store, ONE) is None
    assert [pair async for pair in store.scan()] == [], "the claim expired between scan and get"


async def test_claims_expire_in_redis_and_a_users_client_is_not_closed(redis_url):
    async with Redis.from_url(redis_url) as mine:
        async with RedisClaims(mine, prefix="ttl:") as store:
            await put(store, ONE, ttl=100.0)
            assert 90_000 < await mine.pttl(f"ttl:{KEY}") <= 100_000
            await put(store, TWO, ONE, ttl=1000.0)
        assert 900_000 < await mine.pttl(f"ttl:{KEY}") <= 1_000_000
        assert await mine.get(f"ttl:{KEY}") == b"2" * 32 + b'{"v":2}'


@pytest.mark.parametrize("foreign", ["", "11111111"])
async def test_a_foreign_value_in_redis_is_never_replaced(redis_url, foreign):
    async with RedisClaims(redis_url, prefix="foreign:") as store, Redis.from_url(redis_url) as redis:
        await redis.set(f"foreign:{KEY}", foreign)
        assert await put(store, TWO, ONE) is not None
        assert await redis.get(f"foreign:{KEY}") == foreign.encode()


async def test_a_prefix_with_pattern_characters_matches_literally(redis_url):
    async with RedisClaims(redis_url, prefix="a*[b]?\\") as store, RedisClaims(redis_url, prefix="a-b.\\") as other:
        await put(store, ONE)
        await put(other, TWO)
        assert [pair async for pair in store.scan()] == [(KEY, ONE)]


@pytest.mark.parametrize(
    ("durable", "policy", "rights", "risks"),
    [
        (True, "noeviction", "+@all", []),
        (True, "volatile-lru", "+@all", ["(maxmemory-policy volatile-lru): set noeviction"]),
        (False, "allkeys-random", "+@all", ["(maxmemory-policy allkeys-random)", "in a crash: set appendonly yes"]),
        (False, "volatile-ttl", "-info", []),
    ],
)
async def test_a_redis_that_can_lose_claims_is_a_warning_at_the_first_put(durable, policy, rights, risks, caplog):
    with redis_server("--maxmemory-policy", policy, durable=durable) as server:
        async with RedisClaims(server.url) as store, Redis.from_url(server.url) as admin:
            await admin.execute_command("ACL", "SETUSER", "default", rights)
            await asyncio.gather(*(put(store, ONE, key=key_of(number)) for number in range(3)))
            await put(store, TWO)
            warned = [record.message for record in caplog.records]
            assert warned == await store.risks()
    assert [risk in text for risk, text in zip(risks, warned, strict=True)] == [True] * len(risks)
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}


async def test_a_lost_connection_delays_the_warning_and_fails_no_put(caplog):
    class Flaky:
        mget = scan = None
        is_up, logs = False, []

        async def info(self):
            if not self.is_up:
                raise redis.ConnectionError
            return {"aof_enabled": 0}

        async def eval(self, *_):
            self.logs.append(caplog.text)
            return [None]

    store = RedisClaims(server := Flaky())
    assert await put(store, ONE) is None
    server.is_up = True
    assert await put(store, ONE) is None
    assert ["set appendonly" in text for text in server.logs] == [False, True]


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        *("", None, "mysql://u:s3cret@host"),
        *(f"postgresql://user:{rest}" for rest in ("s3cr/et@host", "5#s3cret@host", "5?s3cr=et&s3@host/db=1")),
        *(f"postgresql://user:{rest}" for rest in ("s3cr[et@host", "s3cr@et@host", "s3cr:et@host:s3cret/db")),
        *(f"postgresql://user@{rest}" for rest in ("host:543s3cret", "host/db?s3cret", "[s3cret]/db")),
    ],
)
def test_an_invalid_or_ambiguous_postgres_is_refused_without_showing_it(wrong):
    with pytest.raises(ConfigurationError, match=r"postgresql://|a URL") as excinfo:
        PostgresClaims(wrong)
    error = excinfo.value
    assert "s3" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


def test_an_unambiguous_postgres_url_is_accepted():
    secret = "user:s3cr%2Fet%40@host:5432/db?sslmode=require&application_name=me%40work&my.setting=1"
    for rest in ("", "host", secret, "user@[::1]:5432/db", "user@one:5432,two:5433/db", "user@/db?host=/var/run"):
        assert repr(PostgresClaims(f"postgres://{rest}")) == "PostgresClaims(table='pushsdk_claims')"


def test_an_invalid_table_name_is_refused():
    for wrong in ("", "Claims", "a;b", "a.b.c", "1a", "x" * 52, 'a"b', None):
        with pytest.raises(ConfigurationError, match="table"):
            PostgresClaims(POSTGRES, table=wrong)


async def test_a_connection_is_refused_as_it_may_be_in_a_transaction(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    with pytest.raises(ConfigurationError, match=r"asyncpg\.Pool"):
        PostgresClaims(connection)
    await connection.close()


async def test_a_postgres_that_can_lose_claims_says_how(postgres_url):
    async with PostgresClaims(postgres_url) as store:
        assert any("fsync" in risk for risk in await store.risks())


async def test_concurrent_processes_create_one_table_and_claim_once_whatever_the_isolation(postgres_url):
    url = postgres_url + "&default_transaction_isolation=serializable"
    stores = [PostgresClaims(url, table="begun_together") for _ in range(8)]
    for key in map(key_of, range(9)):
        results = await asyncio.gather(*(put(store, Claim(f"{id(store):032x}", b"{}"), key=key) for store in stores))
        assert results.count(None) == 1
    for store in stores:
        await store.aclose()


async def test_a_role_without_create_rights_uses_an_existing_table(postgres_url):
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE SCHEMA jobs; CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA jobs TO worker")
    url = postgres_url.replace("postgres@", "worker@")
    async with PostgresClaims(url, table="jobs.claims") as store:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await put(store, ONE)
        await admin.execute(PostgresClaims.schema("jobs.claims"))
        await admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.claims TO worker")
        assert await put(store, ONE) is None
        assert await put(store, TWO) == ONE
    await admin.close()


async def test_expired_rows_of_the_table_are_deleted(postgres_url, monkeypatch):
    monkeypatch.setattr(postgres_module, "SWEEP_INTERVAL", 0.0)
    async with PostgresClaims(postgres_url, table="swept") as store:
        for number in range(3):
            await put(store, ONE, key=key_of(number), ttl=-1.0)
        await put(store, ONE, key=key_of(9))
    admin = await asyncpg.connect(postgres_url)
    assert await admin.fetchval("SELECT count(*) FROM swept") == 1
    await admin.close()


@pytest.mark.parametrize(("mode", "expected"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
async def test_a_claim_is_committed_durably(postgres_url, mode, expected):
    settings = {"synchronous_commit": mode}
    async with asyncpg.create_pool(postgres_url, min_size=0, max_size=1, server_settings=settings) as pool:
        store = PostgresClaims(pool, table=f"commits_{mode}")
        await put(store, ONE)
        await pool.execute(f"""CREATE TABLE modes_{mode}(mode text);
            CREATE FUNCTION tell_{mode}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                INSERT INTO modes_{mode} VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
            CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON commits_{mode} INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION tell_{mode}()""")
        await store.put([Put(KEY, TWO, (ONE.token,)), Put(key_of(1), ONE)], WEEK)
        modes = [row["mode"] for row in await pool.fetch(f"SELECT mode FROM modes_{mode}")]
        assert modes == [expected] * 2
        assert await pool.fetchval("SHOW synchronous_commit") == mode


# -- unavailable servers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "start"), [(RedisClaims, redis_server), (PostgresClaims, postgres_server)])
async def test_nothing_is_sent_while_the_server_of_the_store_is_down(make, start):
    service = FakeService()
    with start() as server:
        async with make(server.url) as store, service.client(claims=store) as client:
            await client.send("user-1", HELLO, idempotency_key="a")
            server.stop()
            error = await deliver(client, timeout=10.0)
            assert type(error) is ClaimStoreError
            assert error.__cause__ is not None
            assert service.accepted("user-1") == 1
            server.start()
            await client.send("user-1", HELLO, idempotency_key="b")
    assert service.accepted("user-1") == 2


def test_a_store_that_can_not_list_its_claims_says_so():
    class Plain(MemoryClaims):
        scan = ClaimStore.scan

    with pytest.raises(ConfigurationError, match=r"Plain can't list its claims: implement scan\(\)"):
        Plain().scan()


async def test_a_store_in_memory_has_no_setting_that_can_lose_claims():
    assert await MemoryClaims().risks() == []
