"""Hints: the name that an unknown name is meant for."""

from pushsdk._core.hints import ALIASES, near_name
from pushsdk._core.models import MobilePush
from pushsdk.options import ClientOptions

KNOWN = {"base_url", "api_key", *ClientOptions.__optional_keys__}


def test_each_name_of_another_library_has_one_here():
    names = {*KNOWN, *MobilePush.__struct_encode_fields__}
    assert {near_name(alias, names) for alias in ALIASES} == {*ALIASES.values()}
