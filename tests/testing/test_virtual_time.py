"""Virtual time: delays take no time, and waiting forever is an error at once."""

import asyncio
import inspect
import random

import pytest

from pushsdk import AsyncPushClient, NotSentError
from pushsdk.testing import HangError, virtual_time


def test_waiting_forever_is_an_error_that_lists_the_tasks():
    @virtual_time
    async def wait():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(HangError, match=r"(?s)no task can run and no timer is set.*wait\(\)"):
        wait()


def test_the_decorated_test_is_sync_and_keeps_its_name_and_its_fixtures():
    @virtual_time
    async def test_it(number, *, other):
        """Docstring."""
        assert number == 1
        assert other == "x"

    assert not inspect.iscoroutinefunction(test_it)
    assert test_it.__name__ == "test_it"
    assert test_it.__doc__ == "Docstring."
    assert list(inspect.signature(test_it).parameters) == ["number", "other"]
    test_it(1, other="x")


def test_random_is_seeded_and_restored():
    drawn = []

    @virtual_time
    async def draw():
        drawn.append(random.random())

    random.seed(7)
    expected = random.random()
    random.seed(7)
    draw()
    assert random.random() == expected
    draw()
    assert drawn[0] == drawn[1]


def test_the_error_of_a_test_is_raised_and_its_tasks_are_cancelled():
    tasks = []

    @virtual_time
    async def fail():
        tasks.append(asyncio.create_task(asyncio.sleep(5)))
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert tasks[0].cancelled()


@pytest.mark.parametrize("test", [lambda: None, 5])
def test_a_test_that_is_not_async_is_an_error(test):
    with pytest.raises(TypeError, match=r"^virtual_time needs a test with `async def`; got (.*<lambda>|5)$"):
        virtual_time(test)


async def test_a_test_that_is_called_in_a_running_loop_is_an_error():
    @virtual_time
    async def wait(): ...

    with pytest.raises(RuntimeError, match="wait has its own event loop: call it without await"):
        wait()


@virtual_time
async def test_a_socket_is_refused_with_the_fix():
    async with AsyncPushClient("http://127.0.0.1:1", "key") as client:
        with pytest.raises(NotSentError, match="virtual time serves no sockets, use FakeService "):
            await client.send("ann", {"title": {"en": "Hello"}})
