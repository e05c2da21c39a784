"""Log lines: attempts at DEBUG; retries, splits and pauses at INFO; never an id, a text or the key."""

import logging
import subprocess
import sys
from contextlib import suppress

import pytest

from pushsdk import MobilePush, PushError, RetryPolicy
from pushsdk._io.sender import log_to_stderr
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "TEXTMARKER"}, ios_enabled=True)
QUICK = RetryPolicy(max_attempts=2, initial_delay=0.001)


@pytest.fixture(autouse=True)
def logger():
    logger = logging.getLogger("pushsdk")
    level = logger.level
    yield logger
    logger.setLevel(level)


async def lines_of(service, caplog, users):
    async with service.client(api_key="KEYMARKER", retry=QUICK) as client:
        with suppress(PushError):
            await client.send(users, MESSAGE)
    assert not any(marker in caplog.text for marker in ("USERMARKER", "TEXTMARKER", "KEYMARKER"))
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pushsdk"]


async def test_each_attempt_and_each_retry_is_a_line(caplog):
    caplog.set_level(logging.DEBUG, "pushsdk")
    lines = await lines_of(
        FakeService(Fault.status(429, headers={"Retry-After": "0"}, first=1)), caplog, ["USERMARKER"]
    )
    assert [level for level, _ in lines] == ["DEBUG", "INFO", "DEBUG"]
    assert lines[0][1].startswith("attempt 1 of push for 1 user: REJECTED, HTTP 429, in ")
    assert lines[1][1].startswith("retry of push for 1 user after attempt 1 (HTTP 429), in ")
    assert lines[2][1].startswith("attempt 2 of push for 1 user: ACCEPTED, HTTP 204, in ")


@pytest.mark.parametrize(
    ("status", "body", "is_told"),
    [
        (200, b'{"error": "USERMARKER"}', True),
        (202, b'{"success": false}', True),
        (207, b'{"accepted": 1, "failed": ["USERMARKER"]}', True),
        (200, b'{"rejected_count": 1}', True),
        (200, b'{"error": null, "errors":[], "failed_count": 0}', False),
        (200, b"", False),
        (400, b'{"error": "USERMARKER"}', False),
    ],
)
async def test_an_error_in_an_accepted_answer_is_a_line(caplog, status, body, is_told):
    service = FakeService(Fault.status(status, body=body.decode(), headers={"Content-Type": "application/json"}))
    lines = await lines_of(service, caplog, ["u"])
    text = f"HTTP {status} counts as accepted, but its body has an error or failed users: is base_url right?"
    assert (("WARNING", text) in lines) is is_told


async def test_the_phases_of_a_run_are_lines(caplog):
    caplog.set_level(logging.INFO, "pushsdk")
    async with FakeService().client() as client:
        await client.broadcast(["USERMARKER", "u"], MESSAGE)
    assert caplog.messages == ["the run reads its users", "the run begins: 2 PENDING", "the run ends: 2 ACCEPTED"]


@pytest.mark.parametrize(
    ("value", "level"), [("debug", logging.DEBUG), ("INFO", logging.INFO), ("", None), (None, None)]
)
def test_pushsdk_log_sets_the_level(value, level, logger):
    before = logger.level
    log_to_stderr(value)
    assert logger.level == (before if level is None else level)


@pytest.mark.parametrize(
    ("environ", "level", "line"),
    [({}, "warning", "a line\n"), ({"PUSHSDK_LOG": "debug"}, "debug", "DEBUG pushsdk: a line\n")],
)
def test_lines_reach_stderr_without_any_configuration_of_logging(environ, level, line):
    code = f"import pushsdk, logging; pushsdk.AsyncPushClient; logging.getLogger('pushsdk').{level}('a line')"
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert ended.stderr.endswith(line)


def test_any_other_value_is_a_warning_with_the_levels(logger):
    level = logger.level
    with pytest.warns(UserWarning, match="^PUSHSDK_LOG must be debug, info, warning or error; got 'loud'$"):
        log_to_stderr("loud")
    assert logger.level == level
