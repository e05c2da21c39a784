"""Checks of arguments."""

from __future__ import annotations

from pushsdk._core.arguments import check_users


def test_a_str_is_one_user_not_its_letters() -> None:
    assert check_users("user-1", 1) == (("user-1",), b'"user-1"', 0)
