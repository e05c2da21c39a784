"""The page on the outbox: a row and its transaction share their fate, and killed relays push no row twice."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys

import asyncpg
import pytest
from support.docs import MODULES, module, page
from support.kill_judge import verdict
from support.programs import address_of
from support.service_thread import wait_until

from pushsdk.emulator import Emulator, Fault
from pushsdk.testing.inbox import in_thread

ROWS = 400
KILLS = 4


@pytest.fixture
async def db(postgres_url):
    db = await asyncpg.connect(postgres_url)
    schema = next(block.text for block in page("outbox").blocks if block.language == "sql")
    await db.execute(f"DROP TABLE IF EXISTS orders, outbox; CREATE TABLE orders (id int, state text); {schema}")
    await db.execute("DROP TABLE IF EXISTS pushsdk_claims")
    yield db
    await db.close()


async def test_a_row_is_written_if_the_transaction_commits(db):
    ship = module("outbox_order")["ship"]
    await ship(db, 1, "user-1")
    with pytest.raises(asyncpg.DataError):
        await ship(db, "not a number", "user-2")
    assert await db.fetchval("SELECT array_agg(user_id) FROM outbox") == ["user-1"]


async def test_relays_that_are_killed_push_no_row_twice_and_lose_none(db, postgres_url, tmp_path):
    relay = MODULES["outbox_relay.py"].replace("LIMIT 100", "LIMIT 10").replace("timeout=10", "timeout=1")
    (tmp_path / "outbox_relay.py").write_text(relay)
    texts = [json.dumps({"title": {"en": f"Hi {number}"}, "iosEnabled": True}) for number in range(ROWS)]
    rows = [*((f"user-{number}", text) for number, text in enumerate(texts)), ("nobody", "5")]
    await db.executemany("INSERT INTO outbox (user_id, message) VALUES ($1, $2)", rows)
    dice = random.Random(1)
    with in_thread(Emulator(faults=[Fault.delay(0.05)], keep=2 * ROWS)) as emulator:
        environment = {**os.environ, **address_of(emulator), "DATABASE_URL": postgres_url}

        def start():
            return subprocess.Popen([sys.executable, str(tmp_path / "outbox_relay.py")], env=environment)

        relays = [start(), start()]
        try:
            for kill in range(KILLS):
                share = (kill + 1) * ROWS // (KILLS + 1)
                await asyncio.to_thread(wait_until, lambda share=share: len(emulator.users()) >= share)
                await asyncio.sleep(dice.random() * 0.1)
                relays[kill % 2].send_signal(signal.SIGKILL)
                relays[kill % 2].wait()
                relays[kill % 2] = start()
            while await db.fetchval("SELECT count(*) FROM outbox WHERE outcome IS NULL"):
                await asyncio.sleep(0.05)
                assert [relay.poll() for relay in relays] == [None, None]
        finally:
            for relay in relays:
                relay.kill()
                relay.wait()
    pushed = emulator.users()
    outcomes = dict(await db.fetch("SELECT user_id, outcome FROM outbox"))
    assert outcomes.pop("nobody") == "NOT_SENT"
    counts = verdict(((outcome, pushed.get(user, 0), 0) for user, outcome in outcomes.items()), doubt=KILLS * 10)
    assert counts.keys() <= {"ACCEPTED", "UNKNOWN"}
