"""kill -9 at a chosen moment: nobody is in doubt before the claim of a request, and nobody but its users after it."""

import asyncio
from types import SimpleNamespace

import pytest
from support.claim_stores import SHARED, place_of
from support.kill_drivers import ArrowPlan, Jobs, Run
from support.kill_service import CALM, KillService

USERS = 60
CHUNK = 10


@pytest.fixture
def driver(request):
    kind = request.param
    if kind.startswith("run"):
        return Run(request.getfixturevalue("tmp_path") / "run", USERS, CHUNK, durable=kind == "run, durable")
    if kind.startswith("plan"):
        personal = "placeholders" if kind == "plan, personal" else None
        return ArrowPlan("directory", place_of("directory", request), USERS, CHUNK, personal=personal)
    return Jobs(kind, place_of(kind, request), USERS, CHUNK)


EACH = pytest.mark.parametrize("driver", ["run", "plan", "sqlite"], indirect=True)


async def is_completed(driver, nursery, service, *, doubt):
    """Have another process go on, and return whether all but the users in doubt are accepted."""
    again = {"do": "resume"} if "run" in driver.job and await driver.in_doubt() is not None else {}
    life = await nursery.start(driver.job, service, **again)
    assert (await life.end()).status == 0
    await service.quiet()
    totals = driver.check([life], service, doubt=doubt)
    return (totals["ACCEPTED"], totals["UNKNOWN"]) == (USERS - doubt, doubt)


@EACH
@pytest.mark.parametrize(
    "place",
    ["support.kill_child.api_key", "asyncio.selector_events.BaseSelectorEventLoop.sock_connect", "the claim"],
)
async def test_users_are_sent_to_after_a_kill_before_their_claim(place, driver, nursery):
    async with KillService(USERS, faults=CALM) as service:
        dies_at = driver.claims_at if place == "the claim" else place
        life = await nursery.start(driver.job, service, dies_at=dies_at)
        assert (await life.end()).killed
        assert service.seen == 0
        assert await is_completed(driver, nursery, service, doubt=0)


async def until_nobody_is_in_doubt(driver):
    async with asyncio.timeout(60):
        while await driver.in_doubt() != 0:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)


@EACH
async def test_users_are_sent_to_after_a_kill_during_a_pause(driver, nursery):
    async with KillService(USERS, faults={"429, in a minute": 1}) as service:
        arrived = asyncio.Event()
        service.when_seen = lambda requests: arrived.set()
        life = await nursery.start(driver.job, service)
        await arrived.wait()
        await until_nobody_is_in_doubt(driver)
        life.kill()
        assert (await life.end()).killed
        service.behave(CALM)
        assert await is_completed(driver, nursery, service, doubt=0)


@EACH
async def test_nobody_is_claimed_during_a_handshake(driver, nursery):
    connected = asyncio.Semaphore(0)

    async def connect(reader, writer):
        connected.release()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        address = SimpleNamespace(base_url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        life = await nursery.start(driver.job, address, in_flight=2)
        for _ in range(2):
            await connected.acquire()
        life.kill()
        assert (await life.end()).killed
    assert not await driver.in_doubt()


@pytest.mark.parametrize("driver", ["run", "run, durable", "plan", "plan, personal", *SHARED], indirect=True)
@pytest.mark.parametrize("pushed", [0, 1])
async def test_claimed_users_are_in_doubt_and_are_not_sent_to_again(pushed, driver, nursery):
    place = driver.settles_at if pushed else "pushsdk._io.fast_post.HttpConnection.write"
    async with KillService(USERS, faults=CALM) as service:
        life = await nursery.start(driver.job, service, dies_at=place, in_flight=1)
        assert (await life.end()).killed
        await service.quiet()
        assert service.seen == pushed
        claimed = await driver.in_doubt()
        assert 1 <= claimed <= CHUNK
        assert await is_completed(driver, nursery, service, doubt=claimed)
        assert service.seen > pushed
