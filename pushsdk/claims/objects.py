"""Claims in an object store, such as S3: for processes on many machines, without a database."""

import functools
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import must_be
from pushsdk._core.secret import Secret, sealed
from pushsdk._io.forks import ProcessGuard
from pushsdk.claims._blocking import ThreadedClaims
from pushsdk.claims.store import PAGE, WEEK, Claim, ObjectStoreError, Put

if TYPE_CHECKING:
    from obstore.store import AzureStore, S3Store

URL = re.compile(r"(s3|az)://[A-Za-z0-9._-]+(/[A-Za-z0-9._=/-]*)?")
KEY = re.compile("[0-9a-f]{64}")
# Concurrent requests, each in a thread: after obstore's coroutines, a process that ends at once may abort.
THREADS = 32
_UNMET = ("AlreadyExistsError", "PreconditionError")
_DENIED = "it refuses access: are the credentials and the clock right, and may they get, put, list and delete objects?"
# By the exception's name.
_TEXTS = {
    "FileNotFoundError": "the bucket or container does not exist: create it, or correct its name",
    "PermissionDeniedError": _DENIED,
    "UnauthenticatedError": _DENIED,
    "NotImplementedError": "it has no conditional writes: use S3, Azure Blob Storage, or another claim store",
}
# Without credentials, obstore asks the cloud's metadata server, which has a link-local address.
_METADATA = "//169.254."
_NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for Azure AZURE_STORAGE_ACCOUNT_KEY, "
    "or give the machine a role; ~/.aws is not read"
)
_UNREACHABLE = (
    "it can't be reached ({}): are network, endpoint and region right? An http:// endpoint needs AWS_ALLOW_HTTP=true"
)


class StoredClaim(msgspec.Struct):
    """An object's content."""

    token: str
    ttl: float
    record: msgspec.Raw


class ObjectClaims(ThreadedClaims):
    """Claims in the object store at ``server``: ``s3://bucket/prefix``, ``az://container/prefix``, or an obstore store.

    Needs obstore (the extra ``objects``), and credentials in the environment (``AWS_*``, ``AZURE_*``) or a role. Pass
    an ``obstore.store.S3Store`` or ``AzureStore`` to set other options.

    A claim is one object, which only conditional writes change; a claim costs a PUT, its settlement another. The first
    operation tests that the store obeys the conditions, and is refused otherwise. Claims expire by the store's clock.
    Expired objects stay: delete them by a lifecycle rule of the bucket, later than ``claim_ttl``.
    """

    def __init__(self, server: "str | S3Store | AzureStore", *, claim_ttl: float = WEEK, timeout: float = 5.0) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``. Connects on first use."""
        server = target = sealed(server)
        super().__init__(THREADS, claim_ttl=claim_ttl, timeout=timeout)
        self._objects: Any = _opened(target) if isinstance(target, Secret) else target
        if not hasattr(self._objects, "put"):
            raise must_be("server", "a URL or an obstore store", server)
        # The store's Unix time less the monotonic time. Set by the self-test.
        self._offset = 0.0

    def __repr__(self) -> str:
        return f"ObjectClaims({self._objects!r})"

    async def risks(self) -> list[str]:
        """Test the store with an object that is deleted again. Raises ConfigurationError if it has no conditions."""
        await self._ready()
        return []

    async def _ready(self) -> None:
        if _first_process().is_inherited:
            raise ConfigurationError(
                "the claim store was used before a fork, which object stores don't survive: fork first"
            )
        await super()._ready()

    # -- in the threads -----------------------------------------------------------------------------------------

    def _write(self, put: Put, ttl: float, condition: object) -> object:
        body = msgspec.json.encode(StoredClaim(put.claim.token, ttl, msgspec.Raw(put.claim.record)))
        return self._store(put.key, body, condition)

    def _store(self, name: str, body: bytes, condition: object) -> object:
        """Return the condition for replacing the new object, None if ``condition`` is not met."""
        written = _answer(lambda: self._objects.put(name, body, mode=condition or "create"), *_UNMET)
        return None if written is None else {"e_tag": written["e_tag"]}

    def _read(self, key: str) -> tuple[Claim | None, object]:
        found = _answer(lambda: self._objects.get(key), "FileNotFoundError")
        if found is None:
            return None, None
        meta, data = found.meta, bytes(_answer(found.bytes))
        claim: Claim | None = Claim("", data)  # of another program: never replaced
        with suppress(msgspec.MsgspecError):
            stored = msgspec.json.decode(data, type=StoredClaim)
            is_expired = meta["last_modified"].timestamp() + stored.ttl <= time.monotonic() + self._offset
            claim = None if is_expired else Claim(stored.token, bytes(stored.record))
        return claim, {"e_tag": meta["e_tag"]}

    def _pages(self) -> Iterator[list[str]]:
        pages = self._objects.list(chunk_size=PAGE)
        while page := _answer(lambda: next(pages, None)):
            yield [meta["path"] for meta in page if KEY.fullmatch(meta["path"])]

    def _check(self) -> None:
        """Learn the store's clock, and raise ConfigurationError if the store does not obey the conditions."""
        name = f"self-test-{secrets.token_hex(16)}"
        created = [self._store(name, body, None) for body in (b"first", b"second")]
        # A write that was done may be repeated and refused, as its response was lost: the object tells.
        before = _answer(lambda: self._objects.head(name))
        condition = {"e_tag": before["e_tag"]}
        changes = [self._store(name, body, condition) for body in (b"changed", b"outdated")]
        after = _answer(lambda: self._objects.head(name))
        offset = after["last_modified"].timestamp() - time.monotonic()
        with suppress(ObjectStoreError):  # without the right to delete, the lifecycle rule does it
            _answer(lambda: self._objects.delete(name))
        if all(created) or all(changes) or after["e_tag"] == before["e_tag"]:
            raise ConfigurationError(f"the claim store can't be used: {_TEXTS['NotImplementedError']}")
        self._offset = offset


@functools.cache
def _first_process() -> ProcessGuard:
    # obstore's threads, which a forked child lacks, serve all stores in a process.
    return ProcessGuard()


def _answer(request: Callable[[], Any], *absent: str) -> Any:
    """Return the response, None for an ``absent`` error's name. Raise ObjectStoreError for any other."""
    try:
        return request()
    except Exception as error:  # noqa: BLE001 - obstore's text may hold a signed URL: it is in no error of ours
        name = type(error).__name__
        text = _NO_CREDENTIALS if _METADATA in str(error) else _TEXTS.get(name, _UNREACHABLE.format(name))
    if name in absent:
        return None
    raise ObjectStoreError(text)


def _opened(url: Secret) -> Any:
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigurationError("ObjectClaims needs obstore (the extra 'objects'): pip install obstore") from None
    if URL.fullmatch(url.reveal()):
        with suppress(Exception):  # its text may quote the environment
            # Without client_options, which would replace those in the environment.
            return from_url(url.reveal(), retry_config={"max_retries": 2})
    raise ConfigurationError(
        "the URL of an object store must be like s3://bucket/prefix or az://container/prefix, with its credentials in "
        "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; AZURE_STORAGE_ACCOUNT_NAME, "
        "AZURE_STORAGE_ACCOUNT_KEY) and not in the URL"
    )
