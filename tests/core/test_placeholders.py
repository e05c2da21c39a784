"""Placeholders: make, find, fill."""

import math
import time
from decimal import Decimal

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


def test_a_placeholder_is_written_as_the_interface_shows_it():
    assert placeholder("first_name", "there") == "{{ first_name | 'there' }}"
    assert placeholder("first_name", "") == "{{ first_name | '' }}"


@pytest.mark.parametrize("name", ["'", "", " ", "a|b", "a\nb", " a", "a ", "a{b", "a}b", None])
def test_a_name_that_could_not_be_read_back_is_refused(name):
    with pytest.raises(ValidationError):
        placeholder(name, "there")


@pytest.mark.parametrize("fallback", ["Jane's", "a{{b", "a}}b", None])
def test_a_fallback_that_could_not_be_read_back_is_refused_without_being_shown(fallback):
    with pytest.raises(ValidationError) as excinfo:
        placeholder("name", fallback)
    assert "Jane" not in str(excinfo.value)


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


def test_what_cannot_be_parsed_is_left_untouched_and_called_malformed():
    for text in [
        "{{ name | 'it's' }}",
        "{{   | 'there' }}",
        "{{ name 'there' }}",
        "{{ name | 'there' }",
        "{ name | 'there' }}",
        "{{ na|me | 'there' }}",
        "{{ name | 'a{{b' }}",
        "{{ name | 'a}}b' }}",
        "}}",
    ]:
        assert find_placeholders(text) == []
        assert render(text, {"name": "Jane"}) == text
        assert malformed_placeholder(text)


def test_a_missing_fallback_is_shown_where_it_belongs():
    for text in ["{{ name }}", "Hi {{name}}, {{", "{{ a | 'b' }} {{name }}"]:
        assert malformed_placeholder(text) == "a placeholder needs a fallback, such as {{ name | 'there' }}"


def test_a_text_without_leftover_braces_is_well_formed():
    for text in ["", "{ 1 } or {a, b}", "{ {{ a | 'b' }} }", "{{{ a | 'b' }}}"]:
        assert not malformed_placeholder(text)
        assert render(text, {}) == text.replace("{{ a | 'b' }}", "b")


def test_a_value_is_filled_in_and_a_missing_value_becomes_the_fallback():
    for fields, text in [
        ({}, "Hi there"),
        ({"name": None}, "Hi there"),
        ({"name": 0}, "Hi 0"),
        ({"name": 19.0}, "Hi 19"),
        ({"name": True}, "Hi true"),
        ({"name": 1e21}, "Hi 1000000000000000000000"),
        ({"name": Decimal("1.50")}, "Hi 1.50"),
        ({"name": math.nan}, "Hi there"),
        ({"name": "{{ x | 'y' }}"}, "Hi {{ x | 'y' }}"),
        ({"name": r"\1\g<0>"}, r"Hi \1\g<0>"),
    ]:
        assert render("Hi {{ name | 'there' }}", fields) == text


@pytest.mark.parametrize("value", [["12A"], {"row": 12}, b"12A"])
def test_a_list_or_an_object_is_not_filled_in(value):
    with pytest.raises(ValidationError, match=f"takes a text or a number; its field is {type(value).__name__}$"):
        render("Hi {{ seats | 'there' }}", {"seats": value})


@pytest.mark.parametrize("unit", ["{{", "{", "{{a|'", "{{a|' ", "{{ a |", "{{a|'b'", "'", " ", "{{a "])
def test_hostile_text_is_read_in_linear_time(unit):
    text = "{{" + unit * (1_000_000 // len(unit))
    started = time.process_time()
    find_placeholders(text)
    malformed_placeholder(text)
    # Quadratic time would take minutes for a megabyte, linear time some milliseconds.
    assert time.process_time() - started < 2
