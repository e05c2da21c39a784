"""Ten thousand odd ids, from each source to the body: unchanged, or refused by name."""

import csv
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.audiences import made
from support.odd_ids import odd_ids

from pushsdk import Audience
from pushsdk.testing import FakeService

EARLY = 21_000
SEED = random.SystemRandom().getrandbits(32)


@pytest.fixture(scope="module")
def users():
    return odd_ids(SEED)


def table_of(users):
    return pa.table({"user_id": users, "age": [number % 60 for number in range(len(users))]})


def rows_of(users, late):
    """Return the rows, with plain numbers first if the ids come late: readers guess types from the first rows."""
    early = [(number, 1) for number in range(10**7, 10**7 + EARLY)] if late else []
    return [*early, *((user, number % 60) for number, user in enumerate(users))]


def csv_of(folder, users, suffix, *, late=False):
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if suffix == "tsv" else ",", lineterminator="\n")
    writer.writerows([("user_id", "age"), *rows_of(users, late)])
    return made(folder, f"u.{suffix}", text.getvalue())


def json_of(folder, users, *, late=False):
    lines = (json.dumps({"user_id": user, "age": age}) for user, age in rows_of(users, late))
    return made(folder, "u.jsonl", "\n".join(lines))


def parquet_of(folder, users):
    pq.write_table(table_of(users), folder / "u.parquet")
    return folder / "u.parquet"


def lines_of(users):
    return "".join(f"{user}\n" for user in users)


SOURCES = {
    "csv": lambda folder, users: Audience.read(csv_of(folder, users, "csv")),
    "tsv": lambda folder, users: Audience.read(csv_of(folder, users, "tsv")),
    "json": lambda folder, users: Audience.read(json_of(folder, users)),
    "txt": lambda folder, users: Audience.read(made(folder, "u.txt", lines_of(users))),
    "stdin": lambda folder, users: Audience.lines(io.BytesIO(lines_of(users).encode())),
    "parquet": lambda folder, users: Audience.read(parquet_of(folder, users)),
    "arrow": lambda folder, users: Audience.table(table_of(users)),
    "query csv": lambda folder, users: Audience.query(f"FROM '{csv_of(folder, users, 'csv')}'"),
    "query tsv": lambda folder, users: Audience.query(f"FROM '{csv_of(folder, users, 'tsv')}'"),
    "query json": lambda folder, users: Audience.query(f"FROM '{json_of(folder, users)}'"),
    "late csv": lambda folder, users: Audience.query(f"FROM '{csv_of(folder, users, 'csv', late=True)}'"),
    "late tsv": lambda folder, users: Audience.query(f"FROM '{csv_of(folder, users, 'tsv', late=True)}'"),
    "late json": lambda folder, users: Audience.query(f"FROM '{json_of(folder, users, late=True)}'"),
    "query parquet": lambda folder, users: Audience.query(f"FROM '{parquet_of(folder, users)}'"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("source", SOURCES)
async def test_ids_arrive_in_the_body_as_they_are_written(source, users, tmp_path):
    service = FakeService()
    async with service.client() as client:
        await client.broadcast(SOURCES[source](tmp_path, users), {"title": {"en": "Hi"}, "iosEnabled": True})
    arrived = [user for request in service.requests for user in request.user_ids]
    early = [str(number) for number in range(10**7, 10**7 + EARLY)] if source.startswith("late") else []
    assert sorted(arrived) == sorted({*early, *users}), f"seed {SEED}"
