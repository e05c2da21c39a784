"""The services of the guide: making and closing the client, errors, and shutdown with a call in flight."""

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from support.docs import MODULES, module
from support.programs import run_python
from support.servers import free_port
from support.worker_frameworks import installed

from pushsdk import ConfigurationError, NotSentError, PushError, ValidationError
from pushsdk.emulator import Emulator, Fault


@pytest.fixture
async def emulator(monkeypatch):
    async with Emulator() as emulator:
        monkeypatch.setenv("PUSHSDK_BASE_URL", emulator.base_url)
        monkeypatch.setenv("PUSHSDK_API_KEY", emulator.api_key)
        yield emulator


@asynccontextmanager
async def aiohttp_service():
    runner = web.AppRunner(module("aiohttp_service")["make_app"]())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def fastapi_service():
    installed("uvicorn", "fastapi")
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(module("fastapi_service")["app"], port=0, log_level="error"))
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
async def test_shutdown_waits_for_a_push_in_flight(name, emulator):
    emulator.set_faults([Fault.delay(0.3)])
    async with aiohttp.ClientSession() as session:
        async with SERVICES[name]() as url:
            posted = asyncio.create_task(session.post(f"{url}/shipped/ann"))
            while not emulator.requests:  # noqa: ASYNC110 - the service has no event to await
                await asyncio.sleep(0)
        assert (await posted).ok
    assert emulator.users() == {"ann": 1}


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (Fault.status(429, retry_after=30), 503, "30"),
        (Fault.status(400), 502, None),
        (Fault.status(500), 504, None),
        (None, 503, "1"),
    ],
)
async def test_a_service_answers_with_what_the_caller_may_do(
    name, emulator, monkeypatch, caplog, fault, status, retry_after
):
    if fault is None:
        monkeypatch.setenv("PUSHSDK_BASE_URL", f"http://127.0.0.1:{free_port()}")
    else:
        emulator.set_faults([fault])
    async with (
        SERVICES[name]() as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/shipped/ann") as response,
    ):
        assert response.status == status
        assert response.headers.get("Retry-After") == retry_after
    (logged,) = (record for record in caplog.records if record.name == f"{name}_service")
    assert logged.levelname == "ERROR"
    assert isinstance(logged.args[-1], PushError)


CERTIFICATE = NotSentError("not sent: the certificate is wrong")
CERTIFICATE.retryable = False


async def test_an_error_of_the_program_or_of_its_input_asks_nobody_to_try_again(caplog):
    text = "user_ids[1]: the user id is empty"
    wrong_input = ValidationError(text)
    wrong_setting = ConfigurationError("rate must be a Rate")

    async def pushing(error):
        async def handler(_):
            raise error

        return await module("aiohttp_service")["push_errors"](None, handler)

    with pytest.raises(web.HTTPBadGateway):
        await pushing(CERTIFICATE)
    with pytest.raises(web.HTTPUnprocessableEntity) as caught:
        await pushing(wrong_input)
    assert caught.value.text == text
    with pytest.raises(ConfigurationError):
        await pushing(wrong_setting)
    installed("fastapi", "fastapi")
    push_failed = module("fastapi_service")["push_failed"]
    request = SimpleNamespace(url=SimpleNamespace(path="/shipped/ann"))
    response = await push_failed(request, CERTIFICATE)
    assert response.status_code == 502
    response = await push_failed(request, wrong_input)
    assert response.status_code == 422
    assert text.encode() in response.body
    with pytest.raises(ConfigurationError):
        await push_failed(request, wrong_setting)
    installed("flask", "flask")
    assert module("flask_service")["push_failed"](CERTIFICATE) == ({"detail": "not pushed"}, 502)
    assert caplog.text.count("the certificate is wrong") == 3


# All threads that may reach the constructor are in it at the same time; a lock lets in one, which waits for no other.
AT_ONCE = """
import contextlib, threading
import {name} as module
barrier, clients, new = threading.Barrier(16), set(), module.PushClient
def slow(*args, **options):
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait(0.5)
    return new(*args, **options)
module.PushClient = slow
threads = [threading.Thread(target=lambda: clients.add(module.get_push())) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(clients) == 1 and clients == {{module.get_push()}}
"""


@pytest.mark.parametrize("name", ["celery_jobs", "flask_service", "shop.push"])
def test_threads_that_come_first_at_the_same_time_get_one_client(name, tmp_path):
    framework = {"shop.push": "django"}.get(name, name.partition("_")[0])
    installed(framework, framework)
    file = f"{name.replace('.', '/')}.py"
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(MODULES[file])
    (tmp_path / "settings.py").write_text("PUSH = {}\n")
    service = {"PUSHSDK_BASE_URL": "http://127.0.0.1:1", "PUSHSDK_API_KEY": "key", "REDIS_URL": "redis://127.0.0.1:1"}
    options = "-W", "error::ResourceWarning", "-c"
    ended = run_python(*options, AT_ONCE.format(name=name), cwd=tmp_path, DJANGO_SETTINGS_MODULE="settings", **service)
    assert ended.code == 0
    assert ended.err == ""


async def test_gunicorn_completes_a_push_of_flask_on_sigterm(emulator, tmp_path):
    installed("flask", "flask")
    installed("gunicorn", "flask")
    emulator.set_faults([Fault.delay(0.5)])
    (tmp_path / "flask_service.py").write_text(MODULES["flask_service.py"])
    port = free_port()
    command = ["-m", "gunicorn", "--threads", "8", "--bind", f"127.0.0.1:{port}", "flask_service:app"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=tmp_path)
    async with aiohttp.ClientSession() as session:
        posted = None
        while posted is None:
            with suppress(aiohttp.ClientConnectionError):
                async with session.get(f"http://127.0.0.1:{port}/"):
                    posted = asyncio.create_task(session.post(f"http://127.0.0.1:{port}/shipped/ann"))
        while not emulator.requests:  # noqa: ASYNC110 - the service has no event to await
            await asyncio.sleep(0)
        process.terminate()
        assert (await posted).status == 204
    assert await process.wait() == 0
    assert emulator.users() == {"ann": 1}


@pytest.mark.parametrize(
    "name",
    [
        *("test_aiohttp_service.py", "test_flask_service.py"),
        *("test_fastapi_service.py", "test_fastapi_orders.py", "test_fastapi_tenants.py"),
    ],
)
def test_the_test_of_a_page_passes_when_it_is_copied(name, tmp_path):
    framework = name.split("_")[1]
    installed(framework, framework)
    installed("httpx2", "fastapi")
    for file, text in MODULES.items():
        if framework in file:
            (tmp_path / file).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    ended = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, name, cwd=tmp_path)
    assert ended.code == 0, ended
