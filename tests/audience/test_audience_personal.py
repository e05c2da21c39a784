"""Requests of their own for the rows of an audience: columns as custom fields, or filled into the texts here."""

import io
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audiences import made

from pushsdk import MobilePush, PushRequest, ValidationError, placeholder, render
from pushsdk._audience.audience import Audience, AudienceSummary
from pushsdk._core import wire
from pushsdk._core.models import UNSET
from pushsdk._core.placeholders import fill

CSV = "user_id,first_name,points\na,Ann,3\nb,,7\na,Again,9\n"
MESSAGE = MobilePush(
    title={"en": "Hi {{ first_name | 'there' }}", "de": "Hallo"},
    body={"en": "{{ points | '0' }} points, 100% yours, {{ first_name | 'friend' }}{{ city | '' }}"},
    ttl=5,
)

# Not every table has the columns of the placeholders.
pytestmark = pytest.mark.filterwarnings("ignore:the audience has no '")


@pytest.fixture
def audience(tmp_path: Path) -> Audience:
    return Audience.read(made(tmp_path, "u.csv", CSV))


def test_columns_become_custom_fields_and_the_message_stays(audience: Audience) -> None:
    requests = list(audience.personalize(MESSAGE))
    assert requests == [
        PushRequest(user_ids=("a",), message=MESSAGE, custom_fields={"first_name": "Ann", "points": "3"}),
        PushRequest(user_ids=("b",), message=MESSAGE, custom_fields={"points": "7"}),
    ]
    assert all(request.message is MESSAGE for request in requests)


def test_columns_go_over_the_custom_fields_of_all(audience: Audience) -> None:
    common = {"points": "none", "campaign": 1}
    personal = audience.personalize(MESSAGE, custom_fields=common)
    assert [request.custom_fields for request in personal] == [
        {"points": "3", "campaign": 1, "first_name": "Ann"},
        {"points": "7", "campaign": 1},
    ]
    assert common == {"points": "none", "campaign": 1}


def test_placeholders_are_filled_into_the_texts_and_nothing_else_is_sent(audience: Audience) -> None:
    ann, other = audience.personalize(MESSAGE, into="text")
    assert ann == PushRequest(
        user_ids=("a",),
        message=MobilePush(title={"en": "Hi Ann", "de": "Hallo"}, body={"en": "3 points, 100% yours, Ann"}, ttl=5),
    )
    assert ann.custom_fields is UNSET
    assert isinstance(other.message, MobilePush)
    assert other.message.title == {"en": "Hi there", "de": "Hallo"}
    assert other.message.body == {"en": "7 points, 100% yours, friend"}


def test_filled_texts_keep_the_custom_fields_of_all(audience: Audience) -> None:
    assert [push.custom_fields for push in audience.personalize(MESSAGE, into="text", custom_fields={})] == [{}, {}]


def test_both_can_be_asked_for(audience: Audience) -> None:
    ann, _ = audience.personalize(MESSAGE, into="both", custom_fields={"x": 1})
    assert isinstance(ann.message, MobilePush)
    assert ann.message.title == {"en": "Hi Ann", "de": "Hallo"}
    assert ann.custom_fields == {"x": 1, "first_name": "Ann", "points": "3"}


def test_a_mapping_is_filled_too_and_keeps_unknown_fields(audience: Audience) -> None:
    message = {"title": {"en": "{{ first_name | 'you' }}"}, "new": {"x": "{{ first_name | 'you' }}"}}
    ann, _ = audience.personalize(message, into="text")
    assert ann.message == {"title": {"en": "Ann"}, "new": {"x": "{{ first_name | 'you' }}"}}
    assert message["title"] == {"en": "{{ first_name | 'you' }}"}


def test_a_message_without_placeholders_is_sent_as_it_is(audience: Audience) -> None:
    plain = MobilePush(title={"en": "100% {1} { odd"})
    with pytest.warns(UserWarning, match="^the message has no placeholder for the columns: all users get the same"):
        personal = audience.personalize(plain, into="text")
    assert all(push.message == plain for push in personal)


def test_requests_come_in_batches_and_again_and_are_counted(audience: Audience) -> None:
    personal = audience.personalize(MESSAGE)
    assert [len(batch) for batch in personal.batches()] == [2]
    assert [len(batch) for batch in personal.batches()] == [2]
    assert personal.summary == AudienceSummary(read=3, users=2, duplicates=1)
    assert personal.source == audience.source


def test_repeated_users_are_kept_if_asked(audience: Audience) -> None:
    assert [push.user_ids for push in audience.personalize(MESSAGE, distinct=False)] == [("a",), ("b",), ("a",)]


def test_only_the_columns_of_placeholders_are_read(tmp_path: Path) -> None:
    path = tmp_path / "u.parquet"
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT 1 AS user_id, 'Ann' AS first_name, 'x'::BLOB AS b) TO '{path}' (FORMAT parquet)")
    audience = Audience.read(path)
    [ann] = audience.personalize(MESSAGE, into="text")
    assert isinstance(ann.message, MobilePush)
    assert ann.message.title == {"en": "Hi Ann", "de": "Hallo"}
    with pytest.raises(ValidationError, match="BLOB"):
        list(audience.personalize(MESSAGE))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"message": MESSAGE, "into": "title"}, "into must be 'custom_fields', 'text' or 'both'; got 'title'"),
        ({"message": {"ttl": "x"}}, r"\$.message.ttl"),
        ({"message": {"title": {"en": "a"}}, "custom_fields": {"x": float("nan")}}, r"custom_fields.x"),
        ({"message": "Hi"}, r"message"),
    ],
)
def test_a_message_that_can_not_be_sent_is_an_error_before_reading(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Audience.lines(io.BytesIO(b"")).personalize(**arguments)


def test_every_request_can_be_encoded(audience: Audience) -> None:
    for into in ("custom_fields", "text", "both"):
        for request in audience.personalize(MESSAGE, into=into):  # type: ignore[arg-type]
            assert isinstance(request.message, MobilePush)
            wire.encode_message(request.message)


def test_no_column_shows_in_a_repr(audience: Audience) -> None:
    assert "Ann" not in repr(list(audience.personalize(MESSAGE, into="both")))


parts = st.one_of(
    st.sampled_from([placeholder(name, fallback) for name in ("a", "b c", "é") for fallback in ("", "x", "100%s")]),
    st.sampled_from(["{{ a }}", "{{", "%", "%s", "%%", "%(a)s", " ", "é"]),
    st.text(max_size=3),
)
texts = st.dictionaries(st.sampled_from(["en", "de"]), st.lists(parts).map("".join))


@given(
    texts,
    texts,
    texts,
    st.dictionaries(
        st.sampled_from(["a", "b c", "é", "z"]),
        st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.booleans()),
    ),
)
def test_filled_texts_equal_those_of_render(
    title: dict[str, str], subtitle: dict[str, str], body: dict[str, str], row: dict[str, Any]
) -> None:
    values = {"title": title, "subtitle": subtitle, "body": body}
    expected = {field: {lang: render(text, row) for lang, text in values[field].items()} for field in values}
    assert fill(values, row) == expected
    filled = fill(MobilePush(**values), row)
    assert isinstance(filled, MobilePush)
    assert {field: getattr(filled, field) for field in values} == expected
