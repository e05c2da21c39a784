"""Claims in other people's object stores: moto's S3, and Azurite if it is installed (npm install --global azurite)."""

import base64
import hashlib
import hmac
import os
import random
import shutil
import socket
import sys
from contextlib import suppress
from email.utils import formatdate
from urllib.request import Request, urlopen

import pytest
from support.claim_puts import WEEK, key_of
from support.claim_race import race
from support.object_server import KEYS
from support.servers import Server, free_port
from support.worker_frameworks import installed

from pushsdk.claims import Claim, ObjectClaims, Put

# One request at a time, as its check and its write are two steps.
MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app)).serve_forever()
"""
COUNT = 200
# The account and key in Azurite's documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def moto(port, url):
    installed("moto", "objects")
    yield [sys.executable, "-c", MOTO, str(port)]
    urlopen(Request(f"{url}/claims", method="PUT")).close()
    yield {f"AWS_{name.upper()}": value for name, value in {"endpoint_url": url, "allow_http": "1", **KEYS}.items()}
    yield "s3://claims/jobs"


def azurite(port, url):
    if (command := shutil.which("azurite-blob")) is None:
        pytest.skip("azurite is not installed")
    yield [command, "--inMemoryPersistence", "--silent", "--blobPort", str(port), "--skipApiVersionCheck"]
    date = formatdate(usegmt=True)
    place = f"/{ACCOUNT}/claims"
    signed = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}{place}\nrestype:container"
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    urlopen(Request(f"{url}{place}?restype=container", method="PUT", headers=headers)).close()
    yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
    yield "az://claims/jobs"


@pytest.fixture(params=[moto, azurite])
def location(request, monkeypatch):
    """The location of a claim store in a new server; the environment has the rest."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    steps = request.param(port, url)

    def is_ready():
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    with Server(url, is_ready, next(steps), signal="KILL", env=dict(os.environ)):
        for name, value in next(steps).items():
            monkeypatch.setenv(name, value)
        yield next(steps)


async def test_any_sequence_of_puts_matches_a_dictionary(location):
    stores = [ObjectClaims(location), ObjectClaims(location)]
    truth = {}
    dice = random.Random(7)
    keys = [key_of(number) for number in range(4)]
    for number in range(60):
        key = dice.choice(keys)
        new = Claim(f"{number:032x}", b'{"v":1}')
        expected = tuple(claim.token for claim in truth.values() if dice.random() < 0.5)
        stored = truth.get(key)
        is_refused = stored is not None and stored.token not in expected
        truth |= {} if is_refused else {key: new}
        assert await dice.choice(stores).put([Put(key, new, expected)], WEEK) == [stored if is_refused else None]
        assert await dice.choice(stores).get(keys) == [truth.get(key) for key in keys]
    assert {key: claim async for key, claim in stores[0].scan()} == truth


async def test_exactly_one_of_two_processes_makes_each_claim(location):
    assert await race(location, COUNT) == list(range(COUNT))
