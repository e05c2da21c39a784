"""Ids are split into chunks within the bounds."""

from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.batching import FRAME
from pushsdk._core.body import encode_user_ids
from pushsdk._core.splitting import within
from pushsdk._runs.plan import Chunk, ChunkRequest, Header, UserRange, chunks_of

IDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), min_size=1, max_size=60)


@given(IDS, st.integers(1, 20), st.integers(1, 400))
def test_chunks_hold_every_id_in_order_and_keep_the_bounds(ids, max_users, max_bytes):
    header = Header(kind="broadcast", base_url="", max_users=max_users, max_bytes=max_bytes, message=b"x" * 10)
    chunks = list(chunks_of(ids, header))
    assert [user for users, _ in chunks for user in users] == ids
    for users, encoded in chunks:
        assert encoded == encode_user_ids(users)
        assert len(users) <= max_users
        assert len(users) == 1 or len(encoded) + 10 + FRAME <= max_bytes or max_bytes < 20


def test_a_request_above_the_learned_limit_is_halved_until_it_fits():
    header = Header(kind="broadcast", base_url="", max_users=64, max_bytes=10_000, message=b"{}")
    whole = Chunk(67, encode_user_ids([f"user-{number:04d}" for number in range(67)]))
    request = ChunkRequest.of(UserRange(0, 3, 67), whole, header, 0)
    parts = list(within(request, 10))
    assert [part.users for part in parts] == [8] * 8
    assert [part.positions.start for part in parts] == list(range(3, 67, 8))
    assert parts[-1].ids == encode_user_ids([f"user-{number:04d}" for number in range(59, 67)])
    assert parts[-1].body() == b'{"userIds":[' + parts[-1].ids + b'],"message":{}}'
