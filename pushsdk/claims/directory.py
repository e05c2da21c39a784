"""Claims in files of a directory that hosts share: for the processes of many machines, without a server.

The one thing that has to be atomic, on any file system and over NFS, is that a name can be made only once.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pushsdk._core.errors import ConfigurationError
from pushsdk._io.files import objection
from pushsdk._public import set_public_module
from pushsdk.claims._blocking import Blocking
from pushsdk.claims.store import PAGE, Claim, ClaimStore, Put

__all__ = ["DirectoryClaims"]

T = TypeVar("T")

# The file that says whose directory it is, and the version of the files in it.
MARKER, FORMAT = "pushsdk-claims", b"pushsdk claims 1\n"
# Operations at a time: over a network each waits for a server, and none for another.
THREADS = 16
# A folder, or a file system, where a second name of a file is not allowed.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# Not everything is there on every system, and this module may be imported on all.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
_READ = os.O_RDONLY | _NO_LINK
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)


class DirectoryClaims(ClaimStore):
    """Claims in the directory at ``path``, made where there is none (0700, its files 0600; not its parents).

    Any number of processes of any number of hosts may share it: on a local disk, NFS, EFS or another mounted volume
    that knows hard links; one that does not is refused at the first use. Every claim and every change of one is a
    file of some hundred bytes, and none is deleted: remove the directory as a whole when its jobs are done, never a
    part of it. ``durable`` syncs each to the disk, for a loss of power. A mount that hangs costs a send ``timeout``
    seconds, and ``aclose`` no more than that; what is out then ends in the background, once the mount is back.

    Expiry goes by the clocks of the hosts: they have to agree to within a small part of ``claim_ttl``. A store can be
    pickled before its first use. Nothing is opened before that.
    """

    # On a shared volume a change takes a tenth of a second, and 16 threads make them.
    at_once: int = 256

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        claim_ttl: float = 7 * 86400.0,
        timeout: float = 5.0,
        durable: bool = True,
    ) -> None:
        """See ``ClaimStore`` for ``claim_ttl`` and ``timeout``."""
        super().__init__(claim_ttl=claim_ttl, timeout=timeout)
        if os.link not in os.supports_dir_fd:
            raise ConfigurationError("this system has no way to use a directory of claims: use another store")
        self._path = Path(path).absolute()
        self._durable = durable
        self._blocking = Blocking(functools.partial(_Files, self._path, durable=durable), most=THREADS)

    def __repr__(self) -> str:
        return f"DirectoryClaims({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._blocking.is_used:
            raise TypeError("a claim store in use is not pickled: pickle it before its first use, or make one there")
        options: dict[str, Any] = {"claim_ttl": self.claim_ttl, "timeout": self.timeout, "durable": self._durable}
        return functools.partial(DirectoryClaims, str(self._path), **options), ()

    async def put(self, puts: Sequence[Put], ttl: float) -> list[Claim | None]:
        return await self._spread(lambda files, put: files.put(put, ttl), puts)

    async def get(self, keys: Sequence[str]) -> list[Claim | None]:
        return await self._spread(_Files.get, keys)

    async def scan(self) -> AsyncIterator[tuple[str, Claim]]:
        for folder in await self._blocking.do(_Files.folders):
            keys = await self._blocking.do(functools.partial(_Files.keys, folder=folder))
            for first in range(0, len(keys), PAGE):
                page = keys[first : first + PAGE]
                for key, claim in zip(page, await self.get(page), strict=True):
                    if claim is not None:
                        yield key, claim

    async def _spread(self, work: Callable[[_Files, T], Claim | None], items: Sequence[T]) -> list[Claim | None]:
        """Work on all items, divided among the threads."""

        def share(first: int) -> asyncio.Future[list[Claim | None]]:
            return self._blocking.order(lambda files: [work(files, item) for item in items[first::THREADS]])

        answers: list[Claim | None] = [None] * len(items)
        for first, part in enumerate(await asyncio.gather(*map(share, range(min(THREADS, len(items)))))):
            answers[first::THREADS] = part
        return answers

    async def aclose(self) -> None:
        """Close the directory, after what is being written; wait for that no longer than ``timeout`` seconds."""
        await self._blocking.aclose(self.timeout)


class _Files:
    """The directory. An entry is a row of files, ``<key>.0``, ``<key>.1`` and so on: the last of them counts.

    Whoever makes the next one has changed the entry, and only one can. As none is deleted or written to, who reads
    sees a state that was true: one that has gone since can't be followed.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._durable = durable
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self._root = os.open(path, _FOLDER)
        # The folders in it that were looked at. Only we can change what they are, as the root is ours.
        self._trusted = {""}
        # Of the temporary files: no two hosts meet.
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
        """See ``ClaimStore.put``."""
        while True:
            number, stored = self._find(put.key)
            if stored is not None and not put.may_replace(stored):
                return stored
            data = b"%b %r\n%b" % (put.claim.token.encode(), time.time() + ttl, put.claim.record)
            # Another process may make this number first.
            if self._write(_name(put.key, number), data):
                return None

    def get(self, key: str) -> Claim | None:
        """Return the claim of this key, None if there is none."""
        return self._find(key)[1]

    def folders(self) -> list[str]:
        """Return the folders of entries."""
        return sorted(name for name in self._names("") if len(name) == 2)

    def keys(self, folder: str) -> list[str]:
        """Return the keys of all entries in a folder."""
        self._trust(folder)
        # Each entry has a file of number 0; a temporary file begins with a dot.
        files = (name.partition(".") for name in self._names(folder))
        return sorted(folder + name for name, _, number in files if name and number == "0")

    # -- the files ----------------------------------------------------------------------------------------------

    def _find(self, key: str) -> tuple[int, Claim | None]:
        """Return the number of the next state of an entry, and its claim if there is one that has not expired."""
        last, number, step = self._read(key, 0), 0, 1
        if last is None:
            return 0, None
        # The numbers have no gaps: the last is found by ever longer steps.
        while step:
            further = self._read(key, number + step)
            if further is None:
                step //= 2
            else:
                last, number, step = further, number + step, 2 * step
        claim, expires = last
        return number + 1, claim if expires > time.time() else None

    def _read(self, key: str, number: int) -> tuple[Claim, float] | None:
        """Return a state of an entry: the claim, and when it expires."""
        with suppress(FileNotFoundError):
            self._trust(key[:2])
            head, _, record = self._content(_name(key, number)).partition(b"\n")
            token, expires = head.split(b" ")
            return Claim(token.decode(), record), float(expires)
        return None

    def _content(self, name: str) -> bytes:
        with open(os.open(name, _READ, dir_fd=self._root), "rb") as opened:
            return opened.read()

    def _names(self, folder: str) -> list[str]:
        with self._opened(folder) as file:
            return os.listdir(file)

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        file = os.open(folder or ".", _FOLDER | _NO_LINK, dir_fd=self._root)
        try:
            yield file
        finally:
            os.close(file)

    def _write(self, name: str, data: bytes) -> bool:
        """A file of this name, whole from the first moment; False where there is one."""
        folder = os.path.dirname(name)
        temporary = os.path.join(folder, f"{self._temporary}.{next(self._numbers)}")
        file = self._create(folder, temporary)
        try:
            try:
                written = os.write(file, data)
                if written != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self._durable:
                    os.fsync(file)
                is_made = self._link(temporary, name)
            finally:
                os.close(file)
        finally:
            os.unlink(temporary, dir_fd=self._root)
        if is_made:
            self._sync(folder)
        return is_made

    def _create(self, folder: str, temporary: str) -> int:
        try:
            self._trust(folder)
            return os.open(temporary, _NEW, 0o600, dir_fd=self._root)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=self._root)
            self._sync("")
            self._trust(folder)
            return os.open(temporary, _NEW, 0o600, dir_fd=self._root)

    def _trust(self, folder: str) -> None:
        """Raises ConfigurationError where a link is in the folder's place, or others may write to it."""
        if folder in self._trusted:
            return
        try:
            with self._opened(folder) as file:
                _check_trusted(file)
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
            # NFS asks again where an answer was lost: then it is ours that is there.
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
        """Have the names in it reach the disk."""
        if self._durable:
            with self._opened(folder) as file:
                os.fsync(file)

    def _check(self) -> None:
        """Raises ConfigurationError where the directory is of something else, or others may write to it."""
        _check_trusted(self._root)
        found = self._marker()
        while found is None:
            names = self._names("")
            if MARKER not in names and any(not name.startswith(".") for name in names):
                break
            # Another process may be first.
            self._write(MARKER, FORMAT)
            found = self._marker()
        if found != FORMAT:
            raise ConfigurationError("the directory of the claim store is of something else, or of another version")

    def _marker(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._content(MARKER)
        return None


def _check_trusted(folder: int) -> None:
    if why := objection(os.fstat(folder)):
        raise ConfigurationError(f"the directory of the claim store can't be trusted: {why}")


def _name(key: str, number: int) -> str:
    return f"{key[:2]}/{key[2:]}.{number}"


set_public_module(__name__, "pushsdk.claims")
