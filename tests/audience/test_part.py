"""Parts of an audience: each user is in one, whatever the source, the process and the version."""

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audiences import ids_of, made, refused

from pushsdk import Audience

IDS = st.lists(st.text("abcä01", min_size=1, max_size=2), max_size=12)


def sources(users):
    table = pa.table({"user_id": pa.array(users, pa.string()), "n": range(len(users))})
    return [Audience.table(table), Audience.lines(io.BytesIO("\n".join(users).encode()))]


@settings(max_examples=8)
@given(IDS, st.integers(1, 4), st.sets(st.sampled_from("ab01")))
def test_each_user_is_in_one_part_from_every_source(users, of, others):
    told = []
    for number in range(2):
        parts = []
        duplicates = 0
        for index in range(of):
            part = sources(users)[number].exclude(Audience.lines(io.BytesIO("\n".join(others).encode())))
            part = part.part(index, of=of)
            parts.append({*ids_of(part, distinct=True)})
            duplicates += part.summary.duplicates
        assert sorted(user for part in parts for user in part) == sorted({*users} - others)
        assert duplicates == len(users) - len({*users})
        told.append(parts)
    assert told[0] == told[1]


def test_parts_never_change(tmp_path):
    users = Audience.read(made(tmp_path, "u.txt", "\n".join(map(str, range(20)))))
    assert ids_of(users.part(0, of=3)) == ["15", "17"]
    assert sum([len(ids_of(users.part(index, of=3))) for index in (1, 2)]) == 18


def test_a_part_has_another_name_and_can_be_parted_again(tmp_path):
    users = Audience.read(made(tmp_path, "u.txt", "\n".join(map(str, range(99)))))
    halves = [users.part(index, of=2) for index in range(2)]
    assert halves[1].source == f"{users.source}, part 1 of 2"
    quarters = [ids_of(half.part(index, of=2)) for half in halves for index in range(2)]
    assert all(quarters)
    assert sorted(user for ids in quarters for user in ids) == sorted(ids_of(users))


@pytest.mark.parametrize(
    ("index", "of", "text"),
    [
        (2, 2, "index must be a whole number from 0 to 1; got 2"),
        (-1, 2, "index must be a whole number from 0 to 1; got -1"),
        (0, 0, "of must be a whole number, 1 or more; got 0"),
    ],
)
def test_a_part_that_does_not_exist_is_an_error(index, of, text):
    assert refused(lambda: Audience.lines(io.BytesIO()).part(index, of=of)) == text
