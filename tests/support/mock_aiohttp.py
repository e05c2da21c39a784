"""aioresponses, mended for aiohttp 3.14: as a fixture, and as a recipe to copy.

aioresponses 0.7.9 makes its responses without the ``stream_writer`` that aiohttp 3.14 asks for (its issue 289), so
every mocked call raises TypeError. A response class that fills it in mends that, whatever version is installed.
"""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import aiohttp
from aioresponses import aioresponses, core


class MockedResponse(aiohttp.ClientResponse):
    """The response of aioresponses, marked as written nothing."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(*args, **kwargs)


@contextmanager
def mocked(**options):
    """``with mocked() as service: service.post(url, status=204)``: as ``aioresponses()``, and it works."""
    with patch.object(core, "ClientResponse", MockedResponse), aioresponses(**options) as service:
        yield service
