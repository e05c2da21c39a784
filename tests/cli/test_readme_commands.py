"""The commands of the README, run unchanged."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from support.claim_puts import ONE, put

from pushsdk.claims import SqliteClaims
from pushsdk.cli.exit import Exit

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_commands_of_the_readme_run(service, tmp_path):
    (tmp_path / "message.json").write_text('{"title": {"en": "Hi"}, "body": {"en": "Hi"}, "iosEnabled": true}')
    (tmp_path / "ids.txt").write_text("ann\nbob\n")
    (block,) = re.findall(r"^```shell\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert all(line.startswith("pushsdk ") for line in block.splitlines())
    shell = f'set -e; pushsdk() {{ "{sys.executable}" -P -m pushsdk.cli "$@"; }}\n{block}'
    subprocess.run(["bash", "-c", shell], cwd=tmp_path, env=os.environ, check=True, timeout=60)
    assert service.users() == {"ann": 1, "bob": 1}
    assert (tmp_path / "spring.csv").read_text().splitlines()[0] == "user_id,outcome,status,reason"


def test_the_commands_for_claims_run(tmp_path):
    async def make() -> None:
        async with SqliteClaims(tmp_path / "claims.db") as store:
            await put(store, ONE)

    asyncio.run(make())
    (block,) = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    shell = f'set -e; pushsdk() {{ "{sys.executable}" -P -m pushsdk.cli "$@"; }}\n{block}'
    ended = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, env=os.environ, check=True, timeout=60, capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("released 0 users of 0 sends\n", "nothing is claimed\n")


def test_the_readme_lists_all_exit_codes():
    rows = re.findall(r"^\| (\d+) \| .+ \|$", README.partition("| exit code |")[2].partition("\n\n")[0], re.MULTILINE)
    assert [int(code) for code in rows] == sorted(Exit)
