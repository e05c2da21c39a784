"""The services of the README: creating and closing the client, and shutdown with a call in flight."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from aiohttp import web
from support.worker_frameworks import installed
from support.worker_lab import MODULES

from pushsdk.emulator import Emulator, Fault


@pytest.fixture
async def emulator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Emulator]:
    async with Emulator() as emulator:
        monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
        yield emulator


def module(name: str, folder: Path) -> ModuleType:
    """Return a module of the README, written to a file and imported."""
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
