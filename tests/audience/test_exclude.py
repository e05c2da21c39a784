"""Users without others: from files, audiences, queries and earlier runs, wherever they are counted, shown or sent."""

import io
from contextlib import closing

import pytest
from support.audiences import ids_of, made, rows_of
from support.run_files import ACCEPTED, CLAIMED, REJECTED, UNKNOWN, event, make_run

from pushsdk import Audience, MessageWarning, MobilePush, RunInUseError, ValidationError, read_report
from pushsdk._runs.run_file.journal import Journal
from pushsdk.testing import FakeService

MESSAGE = MobilePush(title={"en": "Hi"}, ios_enabled=True)


@pytest.fixture
def everyone(tmp_path):
    """Five users, of which one is named twice."""
    return Audience.read(made(tmp_path, "all.csv", "user_id,n\na,1\nb,2\nc,3\nb,4\nd,5\n00123,6\n"))


def test_ids_in_memory_are_excluded(everyone, tmp_path):
    left = everyone.exclude(["a", "b"], iter(["123", "d"]))
    for _ in range(2):
        assert sorted(ids_of(left, distinct=True)) == ["00123", "c"]
    assert left.source.endswith(" without 2 ids in memory without 2 ids in memory")
    assert not left.is_file


@pytest.mark.parametrize(
    ("users", "text"),
    [
        ({"a": 1}, "users must be a file name, an Audience or a list of ids; got dict"),
        (7, "users must be a file name, an Audience or a list of ids; got 7"),
        (["a", 7], r"^users\[1\]: expected a str, got int: pass str\(id\)$"),
    ],
)
def test_what_holds_no_ids_is_not_excluded(everyone, users, text):
    with pytest.raises(ValidationError, match=text):
        ids_of(everyone.exclude(users), distinct=True)


@pytest.mark.parametrize("parts", [[""], ["\ufeff"], ["", "\ufeff"], ["", "b\n"], ["b\n", ""], ["\n"]])
def test_files_without_a_byte_are_refused_when_they_are_read(everyone, tmp_path, parts):
    for number, part in enumerate(parts):
        made(tmp_path, f"optout-{number}.txt", part)
    left = everyone.exclude(str(tmp_path / "optout-*.txt"))
    if any(part.strip("\ufeff") for part in parts):
        assert ("b" in ids_of(left, distinct=True)) == ("b\n" not in parts)
        return
    with pytest.raises(ValidationError, match=r"optout-\*.txt is empty and excludes nobody: did its export fail\?"):
        ids_of(left, distinct=True)


def test_users_are_not_excluded_from_a_reading_with_duplicates(everyone, tmp_path):
    left = everyone.exclude(made(tmp_path, "optout.txt", "a\n"))
    for read in (ids_of, rows_of):
        with pytest.raises(ValidationError, match=r"only if each is pushed to once: leave out dedupe=False"):
            read(left)


def test_an_earlier_run_excludes_whom_it_pushed_or_may_have_pushed(tmp_path):
    journal = make_run(tmp_path / "old.run", sizes=(3, 2))
    events = [event(ACCEPTED, 0, 1, 204), event(REJECTED, 1, 2, 422), event(UNKNOWN, 2, 3), event(CLAIMED, 3, 4)]
    journal.commit(events)
    with pytest.raises(RunInUseError, match="it is still pushing"):
        read_report(tmp_path / "old.run").pushed()
    journal.close()
    pushed = read_report(tmp_path / "old.run").pushed()
    with closing(Journal.open(tmp_path / "old.run", write=True)), pytest.raises(RunInUseError, match="still pushing"):
        ids_of(pushed)
    assert (
        ids_of(pushed) == ids_of(pushed, distinct=True) == [user for user, _ in rows_of(pushed)] == ["u0", "u2", "u3"]
    )
    users = Audience.lines(io.BytesIO(b"u0\nu1\nu2\nu3\nu4\nu5\n")).exclude(pushed)
    assert sorted(ids_of(users, distinct=True)) == ["u1", "u4", "u5"]
    assert not users.is_file


@pytest.mark.parametrize("each", [False, True])
async def test_a_run_without_excluded_users_reports_them(everyone, tmp_path, each):
    service = FakeService()
    left = everyone.exclude(made(tmp_path, "optout.txt", "b\nd\n"))
    async with service.client() as client:
        for _ in range(2):  # the second call continues the run
            run = {"run": tmp_path / "a.run"}
            if each:
                report = await client.send_each(left.personalize(MESSAGE), **run)
            else:
                report = await client.broadcast(left, MESSAGE, **run)
    assert sorted(service.users()) == ["00123", "a", "c"]
    assert report.planned == 3
    assert report.duplicates == 1
    assert report.excluded == 2
    assert read_report(tmp_path / "a.run").excluded == 2


def test_a_run_file_is_refused_with_the_call_that_reads_it(everyone, tmp_path):
    make_run(tmp_path / "old.run").close()
    with pytest.raises(
        ValidationError, match=r"to exclude an earlier run: audience\.exclude\(read_report\(run\)\.pushed\(\)\)"
    ):
        everyone.exclude(tmp_path / "old.run")


async def test_a_damaged_id_in_an_earlier_run_is_warned_of(everyone, tmp_path):
    async with FakeService().client() as client:
        with pytest.warns(MessageWarning, match="'nan'"):
            await client.broadcast(["nan"], MESSAGE, run=tmp_path / "old.run")
        users = everyone.exclude(read_report(tmp_path / "old.run").pushed())
        with pytest.warns(MessageWarning, match=r"a user id \(pushed by .*old\.run\) is 'nan'"):
            await client.broadcast(users, MESSAGE)


async def test_a_damaged_id_to_exclude_is_warned_of_with_its_place(everyone, tmp_path):
    made(tmp_path, "optout-1.csv", "user_id\nd\n")
    left = everyone.exclude(made(tmp_path, "optout-2.csv", "user_id\nb\n1.2E+11\n").with_name("optout-*.csv"))
    async with FakeService().client() as client:
        with pytest.warns(MessageWarning, match=r"a user id \(.*optout-2\.csv, line 3, user_id\) is a number"):
            await client.broadcast(left, MESSAGE)
