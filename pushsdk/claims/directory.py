"""Claims in files of a shared directory: for the processes of many machines, without a server.

Needs one atomic operation, available on every file system and over NFS: a hard link is created only if its name is new.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.files import objection
from pushsdk.claims._blocking import BlockingResource
from pushsdk.claims.store import PAGE, WEEK, Claim, ClaimStore, Put

T = TypeVar("T")

# The file that marks a directory of claims, and its content: the version of the format.
MARKER, FORMAT = "pushsdk-claims", b"pushsdk claims 1\n"
# Concurrent operations: over a network, each waits for the server.
THREADS = 16
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# Some flags are missing on Windows, where this module must still be importable.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_READ = os.O_RDONLY | _NO_FOLLOW
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)


class DirectoryClaims(ClaimStore):
    """Claims in the directory at ``path``, created on first use (mode 0700, its files 0600), but not its parents.

    Any number of processes of any number of hosts may share the directory: on a local disk, NFS, EFS or another mounted
    volume with hard links; the first use refuses any other volume. Every version of a claim is a file of some hundred
    bytes, and no file is ever deleted: when all jobs are done, remove the whole directory, never a part of it.
    ``durable`` syncs each file to disk, for a power loss. If a mount hangs, a send and ``aclose`` wait at most
    ``timeout`` seconds; pending operations complete in the background once the mount is back.

    Claims expire by the clocks of the hosts, which must agree to within a small part of ``claim_ttl``. A store can be
    pickled before its first use.
    """

    # A put to a shared volume takes about 0.1 s, and 16 threads work in parallel.
    at_once: int = 256

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        claim_ttl: float = WEEK,
        timeout: float = 5.0,
        durable: bool = True,
    ) -> None:
        """``claim_ttl`` and ``timeout`` are in seconds, see ``ClaimStore``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        if os.link not in os.supports_dir_fd:
            raise ConfigurationError("DirectoryClaims needs link() relative to a directory: use another store")
        self._path = Path(path).absolute()
        self._durable = durable
        open_directory = functools.partial(_ClaimsDirectory, self._path, durable=durable)
        self._directory = BlockingResource(open_directory, threads=THREADS)

    def __repr__(self) -> str:
        return f"DirectoryClaims({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._directory.is_used:
            raise TypeError("a claim store in use can't be pickled: pickle it before its first use")
        options: dict[str, Any] = {"claim_ttl": self.claim_ttl, "timeout": self.timeout, "durable": self._durable}
        return functools.partial(DirectoryClaims, str(self._path), **options), ()

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        return await self._map(lambda directory, put: directory.put(put, ttl), puts)

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        return await self._map(_ClaimsDirectory.get, keys)

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        for folder in await self._directory.run(_ClaimsDirectory.folders):
            keys = await self._directory.run(functools.partial(_ClaimsDirectory.keys, folder=folder))
            for first in range(0, len(keys), PAGE):
                page = keys[first : first + PAGE]
                for key, claim in zip(page, await self.get(page), strict=True):
                    if claim is not None:
                        yield key, claim

    async def _map(
        self, operation: Callable[[_ClaimsDirectory, T], Claim | None], items: Sequence[T]
    ) -> list[Claim | None]:
        """Return the results of the operation for all items, divided among the threads."""
        count = min(THREADS, len(items))

        def run_share(first: int) -> Awaitable[list[Claim | None]]:
            share = items[first::count]
            return self._directory.run(lambda directory: [operation(directory, item) for item in share])

        results: list[Claim | None] = [None] * len(items)
        for first, share in enumerate(await asyncio.gather(*map(run_share, range(count)))):
            results[first::count] = share
        return results

    async def aclose(self) -> None:
        """Close the directory after pending writes; wait for them up to ``timeout`` seconds."""
        await self._directory.aclose(self.timeout)


class _ClaimsDirectory:
    """The open directory. The versions of a claim are the files ``<key>.0``, ``<key>.1``, ...; the last one counts.

    A writer changes a claim by creating the next version, which only one writer can. As no file is deleted or changed,
    every read returns a version that was current, and a writer can't build on an outdated one.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._durable = durable
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self._root = os.open(path, _FOLDER)
        # Folders that passed ``_check_folder``. Only we can replace them afterwards, as the root is ours.
        self._trusted = {""}
        # Names of temporary files, unique among all hosts.
        self._temporary = f".{secrets.token_hex(16)}"
        self._numbers = itertools.count()
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._root)

    def put(self, put: Put, ttl: float) -> Claim | None:
        """Make one write, see ``ClaimStore.put``."""
        while True:
            version, stored = self._find(put.key)
            if stored is not None and not put.may_replace(stored):
                return stored
            data = b"%b %r\n%b" % (put.claim.token.encode(), time.time() + ttl, put.claim.record)
            # If another process created this version first, look again.
            if self._write(_name(put.key, version), data):
                return None

    def get(self, key: str) -> Claim | None:
        return self._find(key)[1]

    def folders(self) -> list[str]:
        """Return the names of the folders of claims."""
        return sorted(name for name in self._names("") if len(name) == 2)

    def keys(self, folder: str) -> list[str]:
        """Return the keys of all claims in a folder."""
        self._check_folder(folder)
        # Each claim has a version 0. Names of temporary files begin with a dot.
        files = (name.partition(".") for name in self._names(folder))
        return sorted(folder + name for name, _, version in files if name and version == "0")

    # -- the files ----------------------------------------------------------------------------------------------

    def _find(self, key: str) -> tuple[int, Claim | None]:
        """Return the number of the next version, and the claim of the last version unless it has expired."""
        last, version, step = self._read(key, 0), 0, 1
        if last is None:
            return 0, None
        # Versions have no gaps, so doubling steps find the last with few reads.
        while step:
            later = self._read(key, version + step)
            if later is None:
                step //= 2
            else:
                last, version, step = later, version + step, 2 * step
        claim, expires = last
        return version + 1, claim if expires > time.time() else None

    def _read(self, key: str, version: int) -> tuple[Claim, float] | None:
        """Return a version of a claim and the time of its expiry, None if there is no such version."""
        with suppress(FileNotFoundError):
            self._check_folder(key[:2])
            head, _, record = self._content(_name(key, version)).partition(b"\n")
            token, expires = head.split(b" ")
            return Claim(token.decode(), record), float(expires)
        return None

    def _content(self, name: str) -> bytes:
        with open(os.open(name, _READ, dir_fd=self._root), "rb") as file:
            return file.read()

    def _names(self, folder: str) -> list[str]:
        with self._open_folder(folder) as file:
            return os.listdir(file)

    @contextmanager
    def _open_folder(self, folder: str) -> Iterator[int]:
        file = os.open(folder or ".", _FOLDER | _NO_FOLLOW, dir_fd=self._root)
        try:
            yield file
        finally:
            os.close(file)

    def _write(self, name: str, data: bytes) -> bool:
        """Create a file that is complete as soon as its name exists. Return False if the name exists already."""
        folder = os.path.dirname(name)
        temporary = os.path.join(folder, f"{self._temporary}.{next(self._numbers)}")
        file = self._create(folder, temporary)
        try:
            try:
                if os.write(file, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self._durable:
                    os.fsync(file)
                is_created = self._link(temporary, name)
            finally:
                os.close(file)
        finally:
            os.unlink(temporary, dir_fd=self._root)
        if is_created:
            self._sync(folder)
        return is_created

    def _create(self, folder: str, temporary: str) -> int:
        with suppress(FileNotFoundError):
            self._check_folder(folder)
            return os.open(temporary, _NEW, 0o600, dir_fd=self._root)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700, dir_fd=self._root)
        self._sync("")
        self._check_folder(folder)
        return os.open(temporary, _NEW, 0o600, dir_fd=self._root)

    def _check_folder(self, folder: str) -> None:
        """Raise ConfigurationError if the folder is a link or a file, or if other users may write to it."""
        if folder in self._trusted:
            return
        try:
            with self._open_folder(folder) as file:
                _check_owner(file)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise ConfigurationError(
                f"the directory of the claim store can't be trusted: {folder} must be a folder, and is a link or a "
                "file: remove it"
            ) from None
        self._trusted.add(folder)

    def _link(self, temporary: str, name: str) -> bool:
        try:
            os.link(temporary, name, src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)
        except FileExistsError:
            # NFS retries after a lost response: then the existing link is our own.
            return os.stat(temporary, dir_fd=self._root).st_nlink > 1
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise ConfigurationError(
                    "the file system of the claim store allows no hard links: use a directory on NFS or a disk, or "
                    "another store"
                ) from error
            raise
        return True

    def _sync(self, folder: str) -> None:
        """Sync the names in the folder to disk."""
        if self._durable:
            with self._open_folder(folder) as file:
                os.fsync(file)

    def _check(self) -> None:
        """Create the marker in an empty directory. Raise ConfigurationError if the directory is not a claim store."""
        _check_owner(self._root)
        marker = self._marker()
        while marker is None:
            names = self._names("")
            if MARKER not in names and any(not name.startswith(".") for name in names):
                break
            # Another process may create the marker first.
            self._write(MARKER, FORMAT)
            marker = self._marker()
        if marker != FORMAT:
            raise ConfigurationError(
                "the directory of the claim store holds other files or claims of another version: use an empty one"
            )

    def _marker(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._content(MARKER)
        return None


def _check_owner(folder: int) -> None:
    if why := objection(os.fstat(folder)):
        raise ConfigurationError(f"the directory of the claim store can't be trusted: {why}")


def _name(key: str, version: int) -> str:
    return f"{key[:2]}/{key[2:]}.{version}"
