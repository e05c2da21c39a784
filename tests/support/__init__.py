"""Servers, fakes and builders that the tests share."""
