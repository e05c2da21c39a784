"""The Kubernetes page: SIGTERM in the middle of sends and of a broadcast loses nothing, as the service counts it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

import aiohttp
import pytest
from support.docs import MODULES, page
from support.programs import address_of
from support.servers import free_port

from pushsdk.emulator import Emulator, Fault
from pushsdk.testing.inbox import in_thread

BROADCAST = re.search(r"command: \[pushsdk, (.*)\]", page("kubernetes").text)
USERS = 200_000
SERVICE = ["kubernetes_service.py", "aiohttp_service.py"]


@pytest.fixture
def service():
    # Slow, so that a signal finds requests in flight.
    with in_thread(Emulator(faults=[Fault.delay(0.1)])) as emulator:
        yield emulator


def start(command, folder, service, **more):
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | address_of(service) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(command, folder, service, **more):
    """Return the exit code and the output of a job."""
    process = start(command, folder, service, **more)
    output, _ = process.communicate()
    return process.returncode, output


def test_the_grace_period_is_longer_than_the_shutdown():
    text = page("kubernetes").text
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", text)
    parts = [
        re.search(pattern, text)
        for pattern in (r'\[sleep, "(\d+)"\]', r"shutdown_timeout=([\d.]+)", r"drain=([\d.]+)", r"timeout=([\d.]+)")
    ]
    seconds = [float(part[1]) for part in parts if part]
    assert int(grace[1]) > sum(seconds[:3])
    # A request ends before the shutdown gives it up.
    assert seconds[1] > seconds[3]


async def test_a_service_completes_its_requests_on_sigterm(tmp_path, service):
    for name in SERVICE:
        (tmp_path / name).write_text(MODULES[name])
    port = free_port()
    answers = {}

    async def order(session, user):
        try:
            async with session.post(f"http://127.0.0.1:{port}/shipped/{user}") as response:
                answers[user] = response.status
        except aiohttp.ClientConnectionError:
            answers[user] = None

    async def is_ready(session):
        try:
            async with session.get(f"http://127.0.0.1:{port}/health") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    process = start(["kubernetes_service.py"], tmp_path, service, PORT=str(port))
    # A connection per request, as a request on a kept one may cross its closing.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        while not await is_ready(session):
            assert process.poll() is None
        async with asyncio.TaskGroup() as tasks:
            for number in range(400):
                tasks.create_task(order(session, f"user-{number}"))
                await asyncio.sleep(0.002)
                if number == 200:
                    process.send_signal(signal.SIGTERM)
    output, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, output
    assert "unknown=0" in output
    pushed = {user for user, status in answers.items() if status == 204}
    assert set(answers.values()) == {204, None}
    assert len(pushed) > 100
    assert service.users() == dict.fromkeys(pushed, 1)


def job(name, folder, users=USERS):
    """Return the command of a broadcast: that of the Job, or the module."""
    (folder / "users.csv").write_text("user_id\n" + "".join(f"user-{number}\n" for number in range(users)))
    (folder / "message.json").write_text(json.dumps({"title": {"en": "Spring sale"}, "iosEnabled": True}))
    (folder / "broadcast_job.py").write_text(MODULES["broadcast_job.py"])
    return ["broadcast_job.py"] if name == "module" else ["-P", "-m", "pushsdk", *BROADCAST[1].split(", ")]


@pytest.mark.parametrize("name", ["command", "module"])
def test_a_broadcast_that_gets_sigterm_is_continued_by_the_next_pod(name, tmp_path, service):
    command = job(name, tmp_path)
    first = start(command, tmp_path, service)
    while first.poll() is None and service.requests < 30:
        time.sleep(0.005)
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate()
    assert first.returncode == 130, output
    assert 0 < len(service.users()) < USERS
    service.set_faults([])
    assert ended(command, tmp_path, service)[0] == 0
    assert service.users() == {f"user-{number}": 1 for number in range(USERS)}


@pytest.mark.parametrize(
    ("name", "faults", "users", "key", "code"),
    [
        ("command", [], 3, None, 0),
        ("module", [Fault.status(400, user="user-1")], 3, None, 1),
        ("module", [], None, None, 2),
        ("module", [Fault.status(500)], 3, None, 3),
        ("module", [], 3, "", 4),
        ("command", [Fault.status(400)], USERS, None, 5),
    ],
)
def test_a_broadcast_that_fails_is_not_restarted(name, faults, users, key, code, tmp_path, service):
    service.set_faults(faults)
    variables = {} if key is None else {"PUSHSDK_API_KEY": key}
    command = job(name, tmp_path, users or 0)
    if users is None:
        (tmp_path / "users.csv").unlink()
    found, output = ended(command, tmp_path, service, **variables)
    assert found == code, output
    assert "Traceback" not in output
    assert users or "users.csv" in output
    codes = re.search(r"FailJob.*\n.*values: \[(.*)\]", page("kubernetes").text)
    assert code == 0 or f"{code}" in codes[1].split(", ")
