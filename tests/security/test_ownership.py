"""Files that another user owns or may write to are not believed."""

import asyncio
import grp
import os
import pwd
from types import SimpleNamespace

import pytest
from support.claim_puts import KEY, ONE, get, put
from support.run_files import make_run

from pushsdk import ConfigurationError, RunFileError, read_report
from pushsdk._io.files import database_objection, folder_objection, objection
from pushsdk.claims import SqliteClaims
from pushsdk.cli.settings import find
from pushsdk.emulator.store.database import Database, StoreError
from pushsdk.spark import DirectoryClaims

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")


def given_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, NOBODY, NOBODY)


def writable_by_all(path):
    path.chmod(0o666 | path.stat().st_mode)


def writable_by_group(path):
    path.chmod(0o660 | path.stat().st_mode)


PLANTED = pytest.mark.parametrize(
    ("plant", "text"),
    [
        (given_away, "it belongs to uid 65534"),
        (writable_by_all, "only its owner may write to it; its mode is 0[67]"),
        (writable_by_group, "only its owner may write to it; its mode is 0[67]"),
    ],
)


def use_claims(store):
    async def used():
        async with store:
            await put(store, ONE)

    asyncio.run(used())


def use_run_file(path):
    if path.exists():
        read_report(path)
    path.touch(0o600)


USES = [
    lambda path: use_claims(SqliteClaims(path)),
    lambda path: use_claims(DirectoryClaims(path)),
    lambda path: Database(path).close(),
    use_run_file,
]


@PLANTED
@pytest.mark.parametrize("use", USES)
def test_a_file_that_others_can_write_to_is_refused(use, plant, text, tmp_path):
    use(tmp_path / "file")
    plant(tmp_path / "file")
    with pytest.raises((ConfigurationError, RunFileError, StoreError), match=text):
        use(tmp_path / "file")


async def test_a_link_in_place_of_a_folder_of_claims_is_not_followed(tmp_path):
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
async def test_a_log_beside_a_claim_store_that_others_can_write_to_is_refused(plant, text, tmp_path):
    (tmp_path / "claims-wal").touch(0o600)
    plant(tmp_path / "claims-wal")
    async with SqliteClaims(tmp_path / "claims") as store:
        with pytest.raises(ConfigurationError, match=f"claims-wal: .*{text}"):
            await get(store)


@PLANTED
def test_a_journal_beside_a_run_file_that_others_can_write_to_is_not_rolled_back(plant, text, tmp_path):
    make_run(tmp_path / "a.run").close()
    (tmp_path / "a.run-journal").touch(0o600)
    plant(tmp_path / "a.run-journal")
    with pytest.raises(RunFileError, match=rf"a\.run-journal: .*{text}"):
        read_report(tmp_path / "a.run")


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o770, 0o757, 0o2777])
def test_a_claim_store_in_a_folder_that_others_can_write_to_is_refused(mode, tmp_path):
    tmp_path.chmod(mode)
    if mode in (0o755, 0o1777):
        use_claims(SqliteClaims(tmp_path / "claims"))
    else:
        with pytest.raises(ConfigurationError, match=rf"the folder of the claim store .* its mode is {mode:04o}"):
            use_claims(SqliteClaims(tmp_path / "claims"))
        assert not (tmp_path / "claims").exists()


def test_a_claim_store_in_the_folder_of_another_user_is_refused(tmp_path):
    tmp_path.chmod(0o1777)
    given_away(tmp_path)
    with pytest.raises(ConfigurationError, match=r"the folder .* it belongs to uid 65534"):
        use_claims(SqliteClaims(tmp_path / "claims"))


@pytest.mark.parametrize(
    ("uid", "name", "members", "is_private"),
    [
        (1000, "me", [], True),
        (1000, "me", ["me"], True),
        (1000, "me", ["me", "other"], False),
        (1000, "staff", [], False),
        (0, "me", [], False),
        (None, "me", [], False),
    ],
)
def test_a_folder_may_be_writable_for_its_users_private_group(uid, name, members, is_private, tmp_path, monkeypatch):
    def user(number):
        if uid is None:
            raise KeyError(number)
        return SimpleNamespace(pw_uid=uid, pw_name="me")

    tmp_path.chmod(0o775)
    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name, gr_mem=members))
    assert (folder_objection(tmp_path) is None) is is_private


def test_a_database_that_replaces_another_is_refused(tmp_path):
    path = tmp_path / "claims"
    path.touch(0o600)
    opened = path.stat()
    assert database_objection(path, opened) is None
    path.rename(tmp_path / "old")
    assert database_objection(path, opened) == "it was replaced while it was opened"
    path.touch(0o600)
    assert database_objection(path, opened) == "it was replaced while it was opened"


@PLANTED
def test_a_settings_file_that_others_can_write_to_runs_no_command(plant, text, tmp_path):
    file = tmp_path / "config.toml"
    ran = tmp_path / "ran"
    file.write_text(f"api_key_command = 'touch {ran}'")
    file.chmod(0o600)
    plant(file)
    with pytest.raises(ConfigurationError, match=text):
        find({"config": str(file)})
    assert not ran.exists()


def test_a_file_of_roots_is_believed(tmp_path, monkeypatch):
    (tmp_path / "file").touch(0o644)
    stat = list((tmp_path / "file").stat())
    for owner, is_ours in ((0, True), (1000, True), (1001, False)):
        stat[4] = owner
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert (objection(os.stat_result(stat)) is None) is is_ours
