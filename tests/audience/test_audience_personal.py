"""Requests of their own for the rows of an audience: columns as custom fields, or filled into the texts here."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audiences import made

from pushsdk import MobilePush, PushRequest, ValidationError, placeholder, render
from pushsdk._audience.audience import Audience, AudienceSummary
from pushsdk._core.models import UNSET
from pushsdk._core.placeholders import fill

CSV = "user_id,first_name,points\na,Ann,3\nb,,7\na,Again,9\n"
MESSAGE = MobilePush(
    title={"en": "Hi {{ first_name | 'there' }}", "de": "Hallo"},
    body={"en": "{{ points | '0' }} points, 100% yours, {{ first_name | 'friend' }}{{ city | '' }}"},
    ttl=5,
)
FILLED = [
    MobilePush(title={"en": "Hi Ann", "de": "Hallo"}, body={"en": "3 points, 100% yours, Ann"}, ttl=5),
    MobilePush(title={"en": "Hi there", "de": "Hallo"}, body={"en": "7 points, 100% yours, friend"}, ttl=5),
]
COLUMNS = [{"first_name": "Ann", "points": "3"}, {"points": "7"}]

# Not every table has the columns of the placeholders.
pytestmark = pytest.mark.filterwarnings("ignore:the audience has no '")


@pytest.fixture
def audience(tmp_path):
    return Audience.read(made(tmp_path, "u.csv", CSV))


@pytest.mark.parametrize(
    ("into", "common", "messages", "fields"),
    [
        ("custom_fields", None, [MESSAGE, MESSAGE], COLUMNS),
        ("custom_fields", {"x": 1, "points": "0"}, [MESSAGE, MESSAGE], [{"x": 1, **columns} for columns in COLUMNS]),
        ("text", None, FILLED, [UNSET, UNSET]),
        ("text", {}, FILLED, [{}, {}]),
        ("both", {"x": 1}, FILLED, [{"x": 1, **columns} for columns in COLUMNS]),
    ],
)
def test_columns_become_custom_fields_or_fill_the_texts(audience, into, common, messages, fields):
    personal = audience.personalize(MESSAGE, into=into, custom_fields=common)
    users = zip("ab", messages, fields, strict=True)
    expected = [PushRequest(user_ids=(user,), message=text, custom_fields=row) for user, text, row in users]
    assert list(personal) == expected
    assert [len(batch) for batch in personal.batches()] == [2], "and again"
    assert personal.summary == AudienceSummary(read=3, users=2, duplicates=1)
    assert personal.source == audience.source
    assert "Ann" not in repr(expected)


def test_a_mapping_is_filled_too_and_keeps_unknown_fields(audience):
    message = {"title": {"en": "{{ first_name | 'you' }}"}, "new": {"x": "{{ first_name | 'you' }}"}}
    ann, _ = audience.personalize(message, into="text")
    assert ann.message == {"title": {"en": "Ann"}, "new": {"x": "{{ first_name | 'you' }}"}}
    assert message["title"] == {"en": "{{ first_name | 'you' }}"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"message": MESSAGE, "into": "title"}, "into must be 'custom_fields', 'text' or 'both'; got 'title'"),
        ({"message": {"ttl": "x"}}, r"\$.message.ttl"),
        ({"message": MESSAGE, "custom_fields": {"x": float("nan")}}, r"custom_fields.x"),
    ],
)
def test_a_message_that_can_not_be_sent_is_an_error_before_reading(arguments, text):
    with pytest.raises(ValidationError, match=text):
        Audience.lines(io.BytesIO(b"")).personalize(**arguments)


parts = st.one_of(
    st.sampled_from([placeholder(name, fallback) for name in ("a", "b c", "é") for fallback in ("", "x", "100%s")]),
    st.sampled_from(["{{ a }}", "{{", "%", "%s", "%%", "%(a)s", " ", "é"]),
    st.text(max_size=3),
)
texts = st.dictionaries(st.sampled_from(["en", "de"]), st.lists(parts).map("".join))
values = st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.booleans())


@given(
    st.fixed_dictionaries({"title": texts, "subtitle": texts, "body": texts}),
    st.dictionaries(st.sampled_from(["a", "b c", "é", "z"]), values),
)
def test_filled_texts_equal_those_of_render(message, row):
    expected = {field: {lang: render(text, row) for lang, text in message[field].items()} for field in message}
    assert fill(message, row) == expected
    assert fill(MobilePush(**message), row) == MobilePush(**expected)
