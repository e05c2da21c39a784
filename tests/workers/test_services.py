"""The services of the guide: making and closing the client, errors, and shutdown with a call in flight."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from aiohttp import web
from support.worker_frameworks import installed
from support.worker_lab import MODULES

from pushsdk import ClientClosedError, ConfigurationError, ValidationError
from pushsdk.emulator import Emulator, Fault


@pytest.fixture
async def emulator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Emulator]:
    async with Emulator() as emulator:
        monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
        yield emulator


def module(name: str, folder: Path) -> ModuleType:
    """Return a module of the guide, written to a file and imported."""
    file = folder / f"{name}.py"
    file.write_text(MODULES[file.name])
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@asynccontextmanager
async def aiohttp_service(folder: Path) -> AsyncIterator[str]:
    runner = web.AppRunner(module("aiohttp_service", folder).app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def fastapi_service(folder: Path) -> AsyncIterator[str]:
    installed("uvicorn", "fastapi")
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(module("fastapi_service", folder).app, port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


SERVICES = {"aiohttp": aiohttp_service, "fastapi": fastapi_service}


@pytest.mark.parametrize("name", SERVICES)
async def test_a_request_to_the_service_pushes(name: str, emulator: Emulator, tmp_path: Path) -> None:
    async with (
        SERVICES[name](tmp_path) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/shipped/ann") as response,
    ):
        assert response.status == 204
    assert emulator.users() == {"ann": 1}


@pytest.mark.parametrize("name", SERVICES)
async def test_shutdown_waits_for_a_push_in_flight(name: str, emulator: Emulator, tmp_path: Path) -> None:
    emulator.faults = [Fault.delay(0.3)]
    async with aiohttp.ClientSession() as session:
        async with SERVICES[name](tmp_path) as url:
            posted = asyncio.create_task(session.post(f"{url}/shipped/ann"))
            while not emulator.requests:  # noqa: ASYNC110 - the service has no event to await
                await asyncio.sleep(0)
        assert (await posted).status == 204
    assert emulator.users() == {"ann": 1}


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (Fault.status(429, headers={"Retry-After": "30"}), 503, "30"),
        (Fault.reset_before(), 504, None),
        (Fault.status(400), 502, None),
        (Fault.status(500), 504, None),
    ],
)
async def test_fastapi_answers_with_what_the_caller_may_do(
    emulator: Emulator, tmp_path: Path, fault: Fault, status: int, retry_after: str | None
) -> None:
    emulator.faults = [fault]
    async with (
        fastapi_service(tmp_path) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/shipped/ann") as response,
    ):
        assert (response.status, response.headers.get("Retry-After")) == (status, retry_after)


async def test_fastapi_says_what_is_wrong_with_the_input_but_not_with_the_program(tmp_path: Path) -> None:
    installed("fastapi", "fastapi")
    handler = module("fastapi_service", tmp_path).push_failed
    response = await handler(None, ValidationError("$.userIds[1]: the user id is empty"))
    assert (response.status_code, response.body) == (422, b'{"detail":"$.userIds[1]: the user id is empty"}')
    assert (await handler(None, ClientClosedError("the client is closed"))).status_code == 503
    with pytest.raises(ConfigurationError):
        await handler(None, ConfigurationError("rate must be a Rate"))


def test_the_test_of_the_fastapi_page_passes_when_it_is_copied(tmp_path: Path) -> None:
    installed("fastapi", "fastapi")
    installed("httpx", "fastapi")
    for name in ("fastapi_service.py", "test_fastapi_service.py"):
        (tmp_path / name).write_text(MODULES[name])
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
