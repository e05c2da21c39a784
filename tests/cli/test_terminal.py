"""No text from outside steers the terminal or forges a line, whatever command prints it."""

import csv
import io
import itertools
import json
import sys

import pytest
from rich.console import Console

from pushsdk._runs.progress import Progress
from pushsdk.cli import output
from pushsdk.cli.terminal import escaped, visible
from pushsdk.emulator import Fault

# C0 without NUL, DEL, C1; text direction; separators; zero width.
HOSTILE = "".join(
    map(chr, [*range(1, 32), *range(127, 160), 0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F)])
) + "".join(map(chr, [0x2060, *range(0x2066, 0x206A), 0xFEFF, 0xAD, 0xE0041]))
EVIL = f"a\x1b[2Jb\nforged{HOSTILE}row"
JSON = {"Content-Type": "application/json"}
KEPT = "ü \u00a0\u3000 \u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469 \U0001f389"


def test_unsafe_characters_are_replaced():
    unsafe = [*HOSTILE, "\0", "\ud800"]
    assert [char for char in unsafe if visible(f"a{char}b") != "a\ufffdb"] == []


def test_characters_that_languages_and_emoji_need_are_kept():
    assert visible(KEPT) == escaped(KEPT) == KEPT


def test_json_keeps_its_data():
    text = json.dumps(HOSTILE, ensure_ascii=False)
    assert json.loads(escaped(text)) == HOSTILE
    assert not set(escaped(text)) & set(HOSTILE)
    assert escaped("\x7f\U000e0041") == "\\u007f\\udb40\\udc41"


@pytest.fixture
def folder(tmp_path, monkeypatch, service):
    """Files with hostile names, ids, texts and keys, and a service with hostile responses."""
    monkeypatch.chdir(tmp_path)
    message = {
        "title": {EVIL: EVIL},
        "body": {EVIL: ""},
        "bigImageUrl": EVIL,
        EVIL: 1,
        "iosEnabled": True,
        "priority": EVIL,
        "ttl": -1,
    }
    (tmp_path / "message.json").write_text(json.dumps(message))
    (tmp_path / "campaign.json").write_text(
        json.dumps({"name": "x", "segment": {"query": "SELECT 1"}, "message": message})
    )
    (tmp_path / "ids.jsonl").write_text(json.dumps({"user_id": EVIL}))
    (tmp_path / "bad.csv").write_text(f"{EVIL},x\n", newline="")
    service.set_faults([Fault.status(200, endpoint="campaigns", body=json.dumps({"uuid": EVIL}), headers=JSON)])
    return tmp_path


BROADCAST = ("broadcast", "ids.jsonl", "--force", "--message", "message.json", "--run")


@pytest.mark.filterwarnings("ignore:a user id")
@pytest.mark.parametrize(
    "words",
    [
        ("campaign", "create", "campaign.json"),
        ("campaign", "create", EVIL),
        ("message", "lint", "message.json"),
        ("message", "preview", "message.json"),
        ("report", EVIL),
        ("report", EVIL, "--json"),
        ("status", EVIL),
        ("resume", f"no{EVIL}"),
        (*BROADCAST, EVIL, "--progress", "json"),
        ("broadcast", "bad.csv", "--message", "message.json", "--run", "a.run"),
        ("send", f"--{EVIL}"),
        ("doctor", "--base-url", f"http://{EVIL}"),
        ("emulator", "--faults", EVIL),
    ],
)
def test_no_command_prints_hostile_text(command, folder, words):
    assert command(*BROADCAST, EVIL, "--progress", "none", "--limit", "1").code == 0
    result = command(*words)
    output = result.out + result.err
    assert output.strip()
    assert not set(output) & (set(HOSTILE) - {"\n"})
    if words[1] != "preview":  # texts of a message may have several lines
        assert "\nforged" not in output


@pytest.mark.filterwarnings("ignore:a user id")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_csv_is_exact_unless_it_is_printed_on_a_terminal(command, folder, monkeypatch, is_terminal):
    command(*BROADCAST, "a.run", "--progress", "none")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    printed = command("report a.run --format csv").out
    if is_terminal:
        assert not set(printed) & (set(HOSTILE) - {"\n"})
        assert [len(line.split(",")) for line in printed.splitlines()] == [4, 4]
    else:
        assert next(itertools.islice(csv.reader(io.StringIO(printed, newline="")), 1, None))[0] == EVIL


@pytest.mark.parametrize("mode", ["plain", "json", "auto"])
def test_progress_does_not_print_hostile_text(mode, capsys, monkeypatch):
    monkeypatch.setattr(
        output, "Console", lambda **_: Console(stderr=True, force_terminal=True, color_system=None, width=400)
    )
    with output.progress(mode) as tell:
        tell(Progress(stage="waiting", planned=1, not_sent=1, trouble=EVIL))
    screen = capsys.readouterr().err
    drawn = {"\x1b", "\r"} if mode == "auto" else set()
    assert "row" in screen
    assert not set(screen) & (set(HOSTILE) - {"\n"} - drawn)
    assert "\x1b[2Jb" not in screen
