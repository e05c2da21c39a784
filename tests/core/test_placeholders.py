"""Placeholders: make, find, fill."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushsdk._core.errors import ValidationError
from pushsdk._core.placeholders import (
    Placeholder,
    find_placeholders,
    malformed_placeholder,
    placeholder,
    render,
)

# Malformed placeholders.
MALFORMED = [
    "{{ name }}",
    "{{ name | there }}",
    '{{ name | "there" }}',
    "{{ name | 'it's' }}",
    "{{ | 'there' }}",
    "{{   | 'there' }}",
    "{{ name 'there' }}",
    "{{ name | 'there' }",
    "{ name | 'there' }}",
    "{{ name | 'there'",
    "{{ na|me | 'there' }}",
    "{{ na\nme | 'there' }}",
    "{{ na'me | 'there' }}",
    "{{ name | 'a{{b' }}",
    "{{ name | 'a}}b' }}",
    "{{ name || 'there' }}",
    "{{",
    "}}",
]


def test_a_placeholder_is_written_as_the_interface_shows_it():
    assert placeholder("first_name", "there") == "{{ first_name | 'there' }}"
    assert placeholder("first_name", "") == "{{ first_name | '' }}"


@pytest.mark.parametrize("part", ["'", "a'b", "{{", "a{{b", "}}", "a}}b"])
def test_either_part_refuses_a_quote_and_double_braces(part):
    for name, fallback in ((part, "there"), ("name", part)):
        with pytest.raises(ValidationError):
            placeholder(name, fallback)


@pytest.mark.parametrize(
    ("name", "fallback"),
    [
        *((name, "there") for name in ("", " ", "a|b", "a\nb", "a\rb", " a", "a ", "a{b", "a}b", None, 1)),
        ("name", None),
        ("name", "Jane's"),
    ],
)
def test_a_name_that_could_not_be_read_back_or_a_fallback_that_is_no_text_is_refused(name, fallback):
    with pytest.raises(ValidationError) as excinfo:
        placeholder(name, fallback)
    assert "Jane" not in str(excinfo.value)


def test_a_fallback_with_an_apostrophe_is_told_the_typographic_one():
    with pytest.raises(ValidationError, match=r"can't hold a ': use .*, the typographic one$"):
        placeholder("name", "it's")


@given(st.text(), st.text())
def test_every_placeholder_that_can_be_made_is_found(name, fallback):
    try:
        tag = placeholder(name, fallback)
    except ValidationError:
        return
    text = f"a {tag} b"
    assert find_placeholders(text) == [Placeholder(name=name, fallback=fallback, start=2, end=2 + len(tag))]
    assert render(text, {}) == f"a {fallback} b"
    assert not malformed_placeholder(tag)


@pytest.mark.parametrize("call", [lambda: find_placeholders(5), lambda: render(None, {}), lambda: render("", "x")])
def test_only_a_text_has_placeholders_and_only_a_mapping_fields(call):
    with pytest.raises(ValidationError, match=r"got int$|got None and dict$|got str and str$"):
        call()


def test_all_placeholders_are_found_in_order_with_their_places():
    text = "Hi {{ first | 'you' }}, {{last|'dear {x}'}}{{ a b | '' }}"
    placeholders = find_placeholders(text)
    assert [(placeholder.name, placeholder.fallback) for placeholder in placeholders] == [
        ("first", "you"),
        ("last", "dear {x}"),
        ("a b", ""),
    ]
    assert [text[placeholder.start : placeholder.end][:2] for placeholder in placeholders] == ["{{"] * 3
    assert [text[placeholder.start : placeholder.end][-2:] for placeholder in placeholders] == ["}}"] * 3


@pytest.mark.parametrize("text", MALFORMED)
def test_what_cannot_be_parsed_is_left_untouched_and_called_malformed(text):
    assert find_placeholders(text) == []
    assert render(text, {"name": "Jane"}) == text
    assert malformed_placeholder(text)


@pytest.mark.parametrize(
    "text", ["", "plain", "{ 1 } or {a, b}", "{{ name | 'there' }}", "{ {{ a | 'b' }} }", "{{{ a | 'b' }}}"]
)
def test_a_text_without_leftover_braces_is_well_formed(text):
    assert not malformed_placeholder(text)
    assert render(text, {}) == text.replace("{{ name | 'there' }}", "there").replace("{{ a | 'b' }}", "b")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Hi there"),
        ({"name": None}, "Hi there"),
        ({"name": "Jane"}, "Hi Jane"),
        ({"name": ""}, "Hi "),
        ({"name": 0}, "Hi 0"),
        ({"name": "{{ x | 'y' }}"}, "Hi {{ x | 'y' }}"),
        ({"name": r"\1\g<0>"}, r"Hi \1\g<0>"),
    ],
)
def test_a_value_is_filled_in_and_a_missing_value_becomes_the_fallback(fields, text):
    assert render("Hi {{ name | 'there' }}", fields) == text


@pytest.mark.parametrize(
    "unit",
    ["{{", "{{ ", "{", "{{a|'", "{{a|' ", "{{ a |", "{{a|'}", "{{a|'b'", "'", "{{a|'b' }", " ", "{{\n", "{{a "],
)
def test_hostile_text_is_read_in_linear_time(unit):
    def seconds(size):
        text = "{{" + unit * (size // len(unit))
        started = time.process_time()
        find_placeholders(text)
        malformed_placeholder(text)
        return time.process_time() - started

    # Quadratic time would take minutes for a megabyte, linear time some milliseconds.
    assert seconds(1_000_000) < 2
