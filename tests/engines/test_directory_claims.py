"""Claims in a directory: files, permissions, failures and refusals."""

import asyncio
import errno
import os
import stat
import threading

import pytest
from support.claim_puts import KEY, ONE, THREE, TWO, key_of, put

from pushsdk import ClaimStoreError, ConfigurationError
from pushsdk.claims import Claim
from pushsdk.spark import DirectoryClaims
from pushsdk.spark import _claims as module
from pushsdk.testing import FakeService

HELLO = {"title": {"en": "Hello"}}


def files(folder):
    """Return the files of claims."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob("??/*"))


def everything(folder):
    return sorted(folder.rglob("*"))


def store_of(folder, **options):
    return DirectoryClaims(folder / "c", **{"durable": False, **options})


# -- files ------------------------------------------------------------------------------------------------------------


async def test_only_the_owner_can_read_folders_and_files(tmp_path):
    old = os.umask(0)
    try:
        async with store_of(tmp_path) as store:
            await put(store, ONE)
            await put(store, TWO, ONE)
    finally:
        os.umask(old)
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in everything(tmp_path)}
    assert modes == {
        "c": 0o700,
        "c/pushsdk-claims": 0o600,
        "c/0f": 0o700,
        **{f"c/0f/{KEY[2:]}.{number}": 0o600 for number in range(2)},
    }


@pytest.mark.parametrize("durable", [False, True])
async def test_files_and_folders_are_synced_if_durable(tmp_path, monkeypatch, durable):
    synced = []
    real = os.fsync

    def fsync(file):
        synced.append(stat.S_ISDIR(os.fstat(file).st_mode))
        real(file)

    async with store_of(tmp_path, durable=durable) as store:
        await put(store, ONE)
        monkeypatch.setattr(os, "fsync", fsync)
        await put(store, TWO, ONE)
        assert synced == ([False, True] if durable else [])
        await put(store, ONE, key=key_of(1))
    # The new folder is synced too.
    assert synced[2:] == ([True, False, True] if durable else [])


async def test_the_last_of_many_versions_is_found_with_few_reads(tmp_path, monkeypatch):
    async with store_of(tmp_path) as store, store_of(tmp_path) as other:
        await put(store, claim_of(0))
        for number in range(1, 500):
            assert await put(store, claim_of(number), claim_of(number - 1)) is None
        looks = []
        real = os.open
        monkeypatch.setattr(os, "open", lambda *words, **options: looks.append(words) or real(*words, **options))
        assert await put(other, ONE) == claim_of(499)
    assert 0 < len(looks) < 40


def claim_of(number):
    return Claim(f"{number:032x}", b"{}")


# -- use ---------------------------------------------------------------------------------------------------------------


async def test_a_relative_path_is_resolved_at_construction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = DirectoryClaims("c")
    monkeypatch.chdir("/")
    async with store:
        await put(store, ONE)
    assert files(tmp_path / "c") == [f"0f/{KEY[2:]}.0"]


def test_windows_is_refused_at_construction(monkeypatch):
    monkeypatch.delattr(os, "O_NOFOLLOW")
    with pytest.raises(ConfigurationError, match="use another store"):
        DirectoryClaims("c")


# -- foreign directories ----------------------------------------------------------------------------------------------


def _foreign(path):
    path.mkdir()
    (path / "mine.txt").touch()


def _newer(path):
    path.mkdir()
    (path / "pushsdk-claims").write_bytes(b"pushsdk claims 2\n")


def _linked(path):
    path.mkdir()
    (path / "pushsdk-claims").symlink_to(path.with_name("elsewhere"))
    path.with_name("elsewhere").write_bytes(module.FORMAT)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda path: path.touch(), NotADirectoryError),
        (lambda path: path.symlink_to("elsewhere"), FileNotFoundError),
        (_foreign, ConfigurationError),
        (_newer, ConfigurationError),
        (_linked, OSError),
    ],
)
async def test_a_foreign_directory_is_refused_and_unchanged(tmp_path, spoil, kind):
    path = tmp_path / "c"
    spoil(path)
    before = everything(tmp_path)
    async with DirectoryClaims(path) as store:
        for _ in range(2):
            with pytest.raises(kind):
                await put(store, ONE)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("damage", [b"", b"one two three\n{}", b"1 never\n{}", b"\xff 1.0\n{}"])
async def test_a_damaged_file_is_an_error_and_nothing_is_sent(tmp_path, damage):
    service = FakeService()
    async with store_of(tmp_path) as store, service.client(claims=store) as client:
        await client.send("user-1", HELLO, idempotency_key="job")
    for path in files(tmp_path / "c"):
        (tmp_path / "c" / path).write_bytes(damage)
    async with store_of(tmp_path) as store, service.client(claims=store) as client:
        with pytest.raises(ClaimStoreError):
            await client.send("user-1", HELLO, idempotency_key="job")
    assert service.users() == {"user-1": 1}


# -- a mount that hangs -----------------------------------------------------------------------------------------------


class Hanging:
    """A system call that hangs until ``back`` is set."""

    def __init__(self, monkeypatch, name):
        self._called, self.back, self._real = threading.Event(), threading.Event(), getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *words, **options):
        self._called.set()
        assert self.back.wait(60.0)
        return self._real(*words, **options)

    async def called(self):
        assert await asyncio.to_thread(self._called.wait, 60.0)


async def test_aclose_gives_up_on_a_hanging_mount_and_the_write_completes_later(tmp_path, monkeypatch):
    store = store_of(tmp_path, timeout=0.05)
    assert await store.get([KEY]) == [None]
    mount = Hanging(monkeypatch, "link")
    adding = asyncio.create_task(put(store, ONE))
    await mount.called()
    await store.aclose()
    assert not adding.done()
    mount.back.set()
    assert await adding is None
    assert files(tmp_path / "c") == [f"0f/{KEY[2:]}.0"]
    await store.aclose()


async def test_a_mount_that_hangs_on_first_use_blocks_no_other_send(tmp_path, monkeypatch):
    service = FakeService()
    mount = Hanging(monkeypatch, "listdir")
    store = store_of(tmp_path, timeout=0.05)
    async with service.client(claims=store) as client:
        with pytest.raises(ClaimStoreError):
            await client.send("user-1", HELLO, idempotency_key="job")
        await mount.called()
        await client.send("user-2", HELLO)
        await client.aclose(drain=0)
    await store.aclose()
    assert service.users() == {"user-2": 1}
    mount.back.set()
    await store.aclose()


# -- failing file systems ---------------------------------------------------------------------------------------------


def failing(monkeypatch, name, error, *, after=False):
    """Make this system call fail, before or after taking effect."""
    real = getattr(os, name)

    def fail(*words, **options):
        if after:
            real(*words, **options)
        raise error

    monkeypatch.setattr(os, name, fail)


async def test_a_link_whose_response_was_lost_is_recognized(tmp_path, monkeypatch):
    async with store_of(tmp_path) as store:
        await put(store, TWO, key=key_of(1))
        with monkeypatch.context() as network:
            # NFS retries and finds the name.
            failing(network, "link", FileExistsError(errno.EEXIST, "exists"), after=True)
            assert await put(store, ONE) is None
            assert await put(store, TWO, ONE) is None
        assert await put(store, THREE) == TWO
    assert files(tmp_path / "c") == [f"00/{key_of(1)[2:]}.0", f"0f/{KEY[2:]}.0", f"0f/{KEY[2:]}.1"]


async def test_a_file_system_without_hard_links_is_a_configuration_error(tmp_path, monkeypatch):
    failing(monkeypatch, "link", OSError(errno.EPERM, os.strerror(errno.EPERM)))
    async with store_of(tmp_path) as store:
        with pytest.raises(ConfigurationError, match="allows no hard links"):
            await put(store, ONE)
    assert files(tmp_path / "c") == []


@pytest.mark.parametrize("name", ["link", "fsync"])
async def test_a_failing_disk_is_an_error_and_leaves_no_partial_file(tmp_path, monkeypatch, name):
    async with store_of(tmp_path, durable=True) as store:
        await put(store, ONE)
        with monkeypatch.context() as broken:
            failing(broken, name, OSError(errno.EIO, os.strerror(errno.EIO)))
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                await put(store, TWO, ONE)
        assert files(tmp_path / "c") == [f"0f/{KEY[2:]}.0"]
        assert await put(store, THREE) == ONE


async def test_a_removed_directory_is_an_error_and_is_not_recreated(tmp_path):
    async with store_of(tmp_path) as store:
        await put(store, ONE)
        for path in reversed(everything(tmp_path)):
            path.rmdir() if path.is_dir() else path.unlink()
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await put(store, ONE, key=key_of(1))
    assert not (tmp_path / "c").exists()
