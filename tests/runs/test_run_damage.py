"""Resumes of damaged run files: refused without sending, or the damage made no difference."""

import random
from collections import Counter
from pathlib import Path

import pytest
from support.fake_service import FakeService, answer, client_of, reset_after
from support.kill_child import MESSAGE, names
from support.virtual_time import run, virtual

from pushsdk import (
    Batching,
    Limits,
    RunFileError,
    StopPolicy,
)

NO_BRAKE = StopPolicy.off()


@pytest.fixture(scope="module")
def half_sent(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of the file of a run with 60 users, 30 of them sent to."""
    path = tmp_path_factory.mktemp("half") / "run"

    @virtual
    async def send() -> None:
        service = FakeService(answer(), reset_after(), then=answer())
        async with client_of(service, batching=Batching(max_users=5), limits=Limits(in_flight=1)) as client:
            report = await client.broadcast(names(60), MESSAGE, run=path, limit=30, stop_policy=NO_BRAKE)
        assert (report.accepted, report.unknown, report.not_sent) == (25, 5, 30)

    send()
    return path.read_bytes()


def resume_damaged(damaged: bytes, path: Path) -> str:
    """Resume a damaged file: an error and nothing sent, or the result of the intact file."""
    path.write_bytes(damaged)
    return run(resume(path), collect=False)


async def resume(path: Path) -> str:
    service = FakeService()
    async with client_of(service, batching=Batching(max_users=5), limits=Limits(in_flight=1)) as client:
        try:
            report = await client.resume(path)
        except RunFileError as error:
            refused = str(error)
        else:
            refused = ""
    if refused:
        assert service.sent == []
        assert str(path) in refused
        assert "person" not in refused
        return "refused"
    assert (report.accepted, report.unknown, report.not_sent) == (55, 5, 0)
    assert service.users() == Counter(names(60)[30:])
    return "sent"


def test_a_truncated_run_file_is_refused_and_nothing_is_sent(half_sent: bytes, tmp_path: Path) -> None:
    # SQLite reads zeros beyond the end, so it is no damage if the last bytes of a checksum are zeros and lost.
    length = len(half_sent.rstrip(b"\0"))
    sizes = [*range(0, length, 512), *(length - cut for cut in (1, 2, 100, 3000))]
    assert {resume_damaged(half_sent[:size], tmp_path / "run") for size in sizes} == {"refused"}


@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_is_refused_or_makes_no_difference(part: int, half_sent: bytes, tmp_path: Path) -> None:
    dice, results = random.Random(part), Counter[str]()
    used = [place for place, byte in enumerate(half_sent) if byte]
    for place in [*dice.sample(used, 60), *dice.sample(range(len(half_sent)), 20)]:
        damaged = bytearray(half_sent)
        damaged[place] ^= 1 << dice.randrange(8)
        results[resume_damaged(bytes(damaged), tmp_path / "run")] += 1
    assert results["refused"] > 50


def test_an_intact_run_file_is_not_refused(half_sent: bytes, tmp_path: Path) -> None:
    assert resume_damaged(half_sent, tmp_path / "run") == "sent"
