"""Idempotency keys: the fingerprint of a payload."""

from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.idempotency import difference, fingerprint_of

PARTS = st.sampled_from([b"", b"a", b"1:a", b"aa", b"-"])
PAYLOADS = st.lists(st.tuples(PARTS, PARTS, st.none() | PARTS), max_size=2)


@given(PAYLOADS, PAYLOADS)
def test_only_equal_payloads_have_the_same_fingerprint(one, two):
    fingerprints = [fingerprint_of("job", "https://push.example", payloads) for payloads in (one, two)]
    assert (fingerprints[0] == fingerprints[1]) is (one == two)


def test_the_key_and_the_base_url_count_too_and_the_part_that_differs_is_named():
    one = [(b"a", b"", None)]
    first = fingerprint_of("job", "https://a", one)
    assert difference(first, fingerprint_of("job", "https://b", one)) == "another base_url"
    assert fingerprint_of("job", "https://ab", one) != fingerprint_of("jobhttps://a", "b", one)
