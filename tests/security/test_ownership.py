"""Files that another user owns or may write to are not believed."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.claim_puts import KEY, ONE, get, put

from pushsdk import ConfigurationError, PushClient, RunFileError, read_report
from pushsdk._io.files import database_objection, objection
from pushsdk.claims import ClaimStore, SqliteClaims
from pushsdk.cli.settings import find
from pushsdk.emulator.store.database import Database, StoreError
from pushsdk.spark import DirectoryClaims

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")


def given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, NOBODY, NOBODY)


def writable_by_all(path: Path) -> None:
    path.chmod(0o666 | path.stat().st_mode)


def writable_by_group(path: Path) -> None:
    path.chmod(0o660 | path.stat().st_mode)


PLANTED = pytest.mark.parametrize(
    ("plant", "text"),
    [
        (given_away, "it belongs to uid 65534"),
        (writable_by_all, "only its owner may write to it; its mode is 0[67]"),
        (writable_by_group, "only its owner may write to it; its mode is 0[67]"),
    ],
)
Plant = Callable[[Path], None]


@PLANTED
@pytest.mark.parametrize("kind", [SqliteClaims, DirectoryClaims])
async def test_a_claim_store_that_others_can_write_to_is_refused(
    kind: Callable[[Path], ClaimStore], plant: Plant, text: str, tmp_path: Path
) -> None:
    async with kind(tmp_path / "claims") as store:
        await put(store, ONE)
    plant(tmp_path / "claims")
    async with kind(tmp_path / "claims") as store:
        with pytest.raises(ConfigurationError, match=text):
            await get(store)


@PLANTED
async def test_a_folder_in_a_directory_of_claims_that_others_can_write_to_is_refused(
    plant: Plant, text: str, tmp_path: Path
) -> None:
    async with DirectoryClaims(tmp_path / "claims") as store:
        await put(store, ONE)
        plant(tmp_path / "claims" / KEY[:2])
        async with DirectoryClaims(tmp_path / "claims") as later:
            for opened in (store, later):
                with pytest.raises(ConfigurationError, match=text):
                    await get(opened)


async def test_a_link_in_place_of_a_folder_of_claims_is_not_followed(tmp_path: Path) -> None:
    for name in ("claims", "planted"):
        async with DirectoryClaims(tmp_path / name) as store:
            await put(store, ONE, key="1f" * 32)
    async with DirectoryClaims(tmp_path / "planted") as store:
        await put(store, ONE)
    (tmp_path / "claims" / KEY[:2]).symlink_to(tmp_path / "planted" / KEY[:2])
    async with DirectoryClaims(tmp_path / "claims") as store:
        for ask in (get(store), put(store, ONE)):
            with pytest.raises(ConfigurationError, match="can't be trusted"):
                await ask


@PLANTED
async def test_a_log_beside_a_claim_store_that_others_can_write_to_is_refused(
    plant: Plant, text: str, tmp_path: Path
) -> None:
    (tmp_path / "claims-wal").touch(0o600)
    plant(tmp_path / "claims-wal")
    async with SqliteClaims(tmp_path / "claims") as store:
        with pytest.raises(ConfigurationError, match=f"claims-wal: .*{text}"):
            await get(store)


def test_a_database_that_replaces_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims"
    path.touch(0o600)
    opened = path.stat()
    assert database_objection(path, opened) is None
    path.rename(tmp_path / "old")
    assert database_objection(path, opened) == "it was replaced while it was opened"
    path.touch(0o600)
    assert database_objection(path, opened) == "it was replaced while it was opened"


@PLANTED
def test_a_store_of_the_emulator_that_others_can_write_to_is_refused(plant: Plant, text: str, tmp_path: Path) -> None:
    Database(tmp_path / "store").close()
    plant(tmp_path / "store")
    with pytest.raises(StoreError, match=text):
        Database(tmp_path / "store")


@PLANTED
def test_a_settings_file_that_others_can_write_to_runs_no_command(plant: Plant, text: str, tmp_path: Path) -> None:
    file, ran = tmp_path / "config.toml", tmp_path / "ran"
    file.write_text(f"api_key_command = 'touch {ran}'")
    file.chmod(0o600)
    plant(file)
    with pytest.raises(ConfigurationError, match=text):
        find({"config": str(file)}, {})
    assert not ran.exists()


@PLANTED
def test_a_run_file_that_others_can_write_to_is_refused(plant: Plant, text: str, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "run").close()
    (tmp_path / "run").chmod(0o600)
    plant(tmp_path / "run")
    with pytest.raises(RunFileError, match=text):
        read_report(tmp_path / "run")


def test_a_planted_claim_reaches_the_caller_in_words(tmp_path: Path) -> None:
    (tmp_path / "claims").touch(0o600)
    writable_by_all(tmp_path / "claims")
    with (
        PushClient("http://127.0.0.1:9", "key", claims=SqliteClaims(tmp_path / "claims")) as client,
        pytest.raises(ConfigurationError, match=r"its mode is 0666: run chmod 644 on it"),
    ):
        client.send("user-1", {"title": {"en": "Hello"}}, idempotency_key="job")


def test_a_file_of_roots_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch(0o644)
    stat = list((tmp_path / "file").stat())
    for owner, is_ours in ((0, True), (1000, True), (1001, False)):
        stat[4] = owner
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert (objection(os.stat_result(stat)) is None) is is_ours
