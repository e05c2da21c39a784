"""TLS contexts for the servers of the tests, good and bad, and the one context their clients trust.

Made once per run: a key and a certificate take milliseconds.
"""

import ssl
from datetime import UTC, datetime
from functools import cache

import trustme

NAMES = ("localhost", "127.0.0.1")


@cache
def _authority():
    return trustme.CA()


def _serving(authority, *names, not_after=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_after=not_after).configure_cert(context)
    return context


@cache
def client_context():
    """Trusts the authority of these tests, and checks host names."""
    context = ssl.create_default_context()
    _authority().configure_trust(context)
    return context


@cache
def good():
    """A server the client should trust."""
    return _serving(_authority(), *NAMES)


def speaking(version):
    """A server the client should trust, of one version of TLS."""
    context = _serving(_authority(), *NAMES)
    context.minimum_version = context.maximum_version = version
    return context


@cache
def untrusted():
    """A certificate with the right names from an unknown authority."""
    return _serving(trustme.CA(), *NAMES)


@cache
def other_host():
    """Trusted, but for another host."""
    return _serving(_authority(), "other.example")


@cache
def expired():
    """Trusted and for this host, until 2020."""
    return _serving(_authority(), *NAMES, not_after=datetime(2020, 1, 1, tzinfo=UTC))
