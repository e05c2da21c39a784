"""Hints: the name that an unknown name is meant for."""

import re

import pytest

from pushsdk._core.hints import ALIASES, check_options, near_name
from pushsdk._core.models import MobilePush
from pushsdk.options import ClientOptions

KNOWN = {"base_url", "api_key", *ClientOptions.__optional_keys__}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("timout", ": did you mean 'timeout'?"),
        ("key", ": did you mean 'api_key'?"),
        ("maxRetries", ": did you mean 'retry'?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_option_is_an_error_with_the_near_one(name, hint):
    text = f"Client() got an unexpected keyword argument {name!r}{hint}"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        check_options("Client", ["timeout", name], KNOWN)
    check_options("Client", ["timeout"], KNOWN)


def test_each_name_of_another_library_has_one_here():
    names = {*KNOWN, *MobilePush.__struct_encode_fields__}
    assert {near_name(alias, names) for alias in ALIASES} == {*ALIASES.values()}
