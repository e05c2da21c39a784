"""Claims in files in a shared directory: for processes on many machines, without a server.

Needs one atomic operation, available on every file system and over NFS: a hard link is created only if its name is new.
"""

import errno
import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress

from pushsdk._core.errors import ConfigurationError
from pushsdk._core.kinds import check
from pushsdk._io.file_names import AnyPath, check_path
from pushsdk._io.files import objection, sync_folder, write_new
from pushsdk.claims._blocking import ThreadedClaims
from pushsdk.claims.store import WEEK, Claim, Put

# The file that marks a claim directory, and its content: the format version.
MARKER, FORMAT = "pushsdk-claims", b"pushsdk claims 1\n"
# Concurrent operations: over a network, each waits for the server.
THREADS = 16
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class DirectoryClaims(ThreadedClaims):
    """Claims in the directory at ``path``, created on first use (mode 0700, its files 0600), but not its parents.

    Any number of processes on any number of hosts may share the directory: on a local disk, NFS, EFS or another mounted
    volume with hard links; the first use refuses any other volume. Every claim version is a file of some hundred
    bytes, and no file is ever deleted: when all jobs are done, remove the whole directory, never a part of it.
    ``durable`` syncs each file to disk, for a power loss. If a mount hangs, a send and ``aclose`` wait at most
    ``timeout`` seconds; an operation that has begun completes in the background once the mount is back.

    Claims expire by the host clocks, which must agree to within a small part of ``claim_ttl``.
    """

    def __init__(self, path: AnyPath, *, claim_ttl: float = WEEK, timeout: float = 5.0, durable: bool = True) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        super().__init__(THREADS, claim_ttl=claim_ttl, timeout=timeout)
        if not hasattr(os, "O_NOFOLLOW"):
            raise ConfigurationError("DirectoryClaims needs a POSIX system, which Windows is not: use another store")
        self._path = os.path.abspath(check_path("path", path, "claims"))
        check("durable", durable, bool)
        self._durable = durable
        # Folders whose names are synced.
        self._prepared = set[str]()

    def __repr__(self) -> str:
        return f"DirectoryClaims({self._path!r})"

    # -- in the threads -----------------------------------------------------------------------------------------
    #
    # The versions of a claim are the files ``<key>.0``, ``<key>.1``, ...; the last one counts. A writer changes a claim
    # by creating the next version, which only one writer can. As no file is deleted or changed, every read returns a
    # version that was current, and a writer can't build on an outdated one.

    def _check(self) -> None:
        """Create the directory and its marker. Raise ConfigurationError if the directory is not a claim store."""
        with suppress(FileExistsError):
            os.mkdir(self._path, 0o700)
        _check_owner(os.stat(self._path))
        with suppress(FileNotFoundError):
            if all(name.startswith(".") for name in os.listdir(self._path)):
                # Another process may create the marker first.
                self._create(f"{self._path}/{MARKER}", FORMAT)
            if _content(f"{self._path}/{MARKER}") == FORMAT:
                return
        raise ConfigurationError(
            "the directory of the claim store holds other files or claims of another version: use an empty one"
        )

    def _pages(self) -> Iterator[list[str]]:
        for folder in range(256):
            # Each claim has a version 0. Temporary file names begin with a dot.
            names = glob.glob("*.0", root_dir=f"{self._path}/{folder:02x}")
            yield [f"{folder:02x}{name.removesuffix('.0')}" for name in names]

    def _write(self, put: Put, ttl: float, condition: int | None) -> int | None:
        """Create the version that ``condition`` numbers. Return the number of the next one, None if it exists."""
        self._prepare(put.key)
        version = condition or 0
        data = b"%b %r\n%b" % (put.claim.token.encode(), time.time() + ttl, put.claim.record)
        return version + 1 if self._create(self._file(put.key, version), data) else None

    def _read(self, key: str) -> tuple[Claim | None, int]:
        """Return the claim in the last version, None if it has expired, and the number of the next version."""
        self._prepare(key)
        last: tuple[Claim | None, float] = None, 0.0
        version, step = -1, 1
        # Versions have no gaps, so doubling steps find the last with few reads.
        while step:
            later = self._version(key, version + step)
            if later is None:
                step //= 2
            else:
                last, version, step = later, version + step, 2 * step
        claim, expires = last
        return claim if expires > time.time() else None, version + 1

    def _prepare(self, key: str) -> None:
        """Create the folder for the key if missing. Raise ConfigurationError if other users may write to it."""
        folder = f"{self._path}/{key[:2]}"
        if folder not in self._prepared:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            self._sync(self._path)
            self._prepared.add(folder)
        # At each operation: whoever may replace the whole directory can't make a folder that belongs to us.
        _check_owner(os.lstat(folder))

    def _version(self, key: str, version: int) -> tuple[Claim, float] | None:
        """Return a claim version and its expiry time, None if there is no such version."""
        with suppress(FileNotFoundError):
            head, _, record = _content(self._file(key, version)).partition(b"\n")
            token, expires = head.split(b" ")
            return Claim(token.decode(), record), float(expires)
        return None

    def _create(self, path: str, data: bytes) -> bool:
        """Create a file that is complete as soon as its name exists. Return False if the name exists already."""
        folder = os.path.dirname(path)
        temporary = f"{folder}/.{secrets.token_hex(16)}"  # unique among all hosts
        try:
            write_new(temporary, data, durable=self._durable)
            os.link(temporary, path)
        except FileExistsError:
            # NFS retries after a lost response: then the existing link is ours.
            if os.stat(temporary).st_nlink == 1:
                return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise ConfigurationError(
                    "the file system of the claim store allows no hard links: use a directory on NFS or a disk, or "
                    "another store"
                ) from error
            raise
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self._sync(folder)
        return True

    def _sync(self, folder: str) -> None:
        if self._durable:
            sync_folder(folder)

    def _file(self, key: str, version: int) -> str:
        return f"{self._path}/{key[:2]}/{key[2:]}.{version}"


def _content(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def _check_owner(status: os.stat_result) -> None:
    if why := objection(status):
        raise ConfigurationError(f"the directory of the claim store can't be trusted: {why}")
