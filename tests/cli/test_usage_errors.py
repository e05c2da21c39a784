"""Wrong command lines and files: each is a usage error that says the fix, and nothing is sent, written or leaked."""

import json
import re

MESSAGE = {"title": {"en": "Hello"}, "iosEnabled": True}
FILES = {
    "message.json": json.dumps(MESSAGE),
    "campaign.json": json.dumps({"name": "Spring", "message": MESSAGE, "segment": {"query": "SELECT 1"}}),
    "segmentless.json": json.dumps({"name": "Spring", "message": MESSAGE}),
    "ids.txt": "ann\n",
    "many.txt": "\n".join(map(str, range(1001))),
    "ids.jsonl": '{"user_id": "ann"}\n{"id": "bob"}\n',
    "none.txt": "\n",
    "none.csv": "user_id\n",
    "zero.csv": "",
    "near.csv": "userid,age\nann,1\n",
    "named.json": json.dumps({**MESSAGE, "title": {"en": "Hi {{ firstname | 'you' }}"}}),
    "named.csv": "user_id,first_name\nann,Ann\nbob,\n",
    "far.csv": "name,age\nann,1\n",
    "cut.json": "{",
    "empty.json": "",
    "list.json": "[]",
    "deep.json": "[" * 100_000,
    "nan.json": '{"ttl": NaN}',
    "types.json": '{"title": {"en": 5}}',
    "utf16.json": '{"ttl": 1}'.encode("utf-16"),
    "bytes.json": b'{"title": {"en": "s3cret\xff"}}',
    "token": "two words",
    "good": "s3cret",
    "rules": '[{"fault": "hang", "probability": 2}]',
    "comma": '[{"fault": "hang"},\n]',
    "limit": '{"max_users": 0}',
    "typo": '{"max_user": 0}',
}
JOB = f"{1:064x}"
WRONG = [
    # send
    ("send ann", "pass the message either with --message FILE, or with --title, --body and --lang"),
    ("send ann,bob --title Hi", "'ann,bob' is one id: write ids apart, without quotation marks"),
    ("send ann --title --body x", "--title requires an argument"),
    ("send --title Hi", "name at least one user"),
    ("send ann --title Hi World", "'World' follows an option: write user ids before the options"),
    ("send None --title x", "leave such users out. Nothing was sent: fix it, or pass --force"),
    ("send '' --title Hi", "a user id is empty: is a variable of the shell not set?"),
    ("broadcast users.csv --title Hi --run ''", "the name of a file is empty: is a variable of the shell not set?"),
    ("broadcast ids.txt --title Hi --run .", "pushsdk: . is a folder without a run: name a file in it, or pass --proc"),
    ("send @ --title x", "@ needs the name of a file: @ids.txt"),
    ("send @none.txt --title x", "no user ids in none.txt: write one per line"),
    ("send @ids.jsonl --title x", "name one with broadcast --primary-key"),
    ("send @many.txt --title x", "at most 1,000 ids"),
    (
        "send ids.txt --title x",
        "ids.txt is a file: write @ids.txt for the ids in it, or --message ids.txt for a message;",
    ),
    ("send ann --message Hello", "Hello: No such file or directory; for a text use --title and --body"),
    ('send ann --message \'{"ttl": ""}\'', "pushsdk: --message: $.message.ttl: "),
    ("send ann --title x --custom-fields name=Ann", '--custom-fields: must be a JSON object, for example \'{"name":'),
    ("send ann --title x --api-key s3cret", "--api-key is not an option"),
    ("--api-key=s3cret send ann --title x", "--api-key is not an option"),
    ("--timeout 5 send ann --title x", "--timeout: options follow the command: pushsdk send"),
    ("send ann --title x --timeout 5m", '--timeout: unable to convert "5m" into float'),
    ("help send --title Hi -- ann", "pushsdk: Unknown option: --title"),
    ("resend", 'Did you mean "send"?'),
    # Files
    (
        "send ann --message cut.json",
        "cut.json: must be JSON: Expecting property name enclosed in double quotes, line 1, col",
    ),
    ("send ann --message empty.json", "empty.json: must be JSON: it is empty"),
    ("send ann --message list.json", "list.json: must be a JSON object, {...}; got list"),
    ("send ann --message deep.json", "deep.json: must be JSON: it is nested too deeply"),
    ("send ann --message nan.json", "nan.json: must be JSON: it is nested too deeply, or has NaN, Infinity"),
    ("send ann --message types.json", "types.json: $.message.title.en: expected a str, got int"),
    ("send ann --message utf16.json", "must be JSON: save it as UTF-8"),
    ("send ann --message bytes.json", "bytes.json: must be JSON: "),
    ("send ann --message campaign.json", 'must be a message, not a campaign; pass only the value of "message"'),
    ("campaign create message.json", "must be a campaign, with name, segment, schedule and message, not a message"),
    ("campaign create segmentless.json", "advice: $: no segment: the campaign has no audience (no-segment)"),
    ("message preview message.json --lang fr", "--lang must be a language of the message: en"),
    # Runs
    ("broadcast user-1 --title x --run a.run", "/user-1: a broadcast reads its users from a file; send takes ids"),
    ("broadcast ids.txt --title x", "broadcast: --run is required"),
    ("broadcast ids.txt --run a.run", "--message"),
    ("broadcast --title x --run a.run", "pass exactly one source of users"),
    ("broadcast near.csv --title x --run a.run", "did you mean --primary-key 'userid'?"),
    ("plan none.csv --title x", "pushsdk: the source has no users"),
    ("plan far.csv --title x", "; name one with --primary-key ..."),
    ("broadcast none.txt --title x --run a.run", "pushsdk: the source has no users"),
    ("broadcast ids.txt --title x --run a.run --max-rejected 1.1", "for --max-rejected"),
    (
        "broadcast ids.txt --title x --run a.run --no-stop-policy --max-rejected 0.1",
        "--no-stop-policy can't be used with --max-rejected",
    ),
    (
        "broadcast ids.txt --title x --run a.run --not-after 2126-11-29",
        "--not-after must be a time such as 18:00 or 2026-11-29T",
    ),
    (
        "broadcast ids.txt --title x --run a.run --not-after 2026-01-15T18:00+01:00",
        "--not-after must be in the future; got 2026-01-1",
    ),
    ("broadcast ids.txt --title x --run a --processes 0", "for --processes"),
    ("broadcast ids.txt --title x --run a --processes 2 --exclude ids.txt", "the source has no users beside the "),
    (
        "broadcast ids.txt --title x --run typo --processes 2",
        "typo is one run file, for one process: leave out --processes; another --run pushes to all again",
    ),
    ("plan ids.txt --title x --personalize", "requires an argument. Choose from: custom-fields, text, both."),
    ("resume a.run ids.txt", "resume: unexpected argument 'ids.txt'"),
    *[
        (
            f"{words} --message named.json",
            "no 'firstname' for the placeholder, did you mean 'first_name'? Nothing was sent: fix it, or pass --force",
        )
        for words in (
            "broadcast named.csv --run a.run --personalize text",
            'send ann --custom-fields \'{"first_name": "Ann"}\'',
        )
    ],
    ("broadcast named.csv --message named.json --run a.run", "pass --personalize. Nothing was sent: fix it, or pass"),
    ("plan named.csv --title \"{{ first_name | 'you' }}\"", "a broadcast sends no columns of the audience: pass"),
    (
        "broadcast ids.txt --title x --run a-{day} --processes 2",
        "a-{day}: the name has a placeholder instead of its value; with today's date: --run daily-{date}.run",
    ),
    (
        "broadcast ids.txt --title x --run a.run --exclude zero.csv --dry-run",
        "/zero.csv is empty and excludes nobody: did its export fail?",
    ),
    # Claims
    (f"claims release {JOB} --older-than 1h --claims sqlite:c", "pass either jobs, --key or --older-than"),
    ("claims release job-42 --claims sqlite:c", "job-42: a job must be the 12 to 64 hexadecimal digits"),
    ("claims release --older-than soon --claims sqlite:c", "older-than"),
    ("claims show --claims sqlite:c", "name a job"),
    ("claims list", "--claims is required. Set the store, here or in PUSHSDK_CLAIMS: sqlite:PATH, redis://HOST, "),
    # The emulator
    ("emulator --faults flakey", "--faults flakey: not a preset (flaky, "),
    ("emulator --faults rules", "$[0]: Fault.probability must be a number from 0 to 1"),
    ("emulator --faults comma", "--faults comma: must be JSON: "),
    ("emulator --limits limit", "limit: $: ServiceLimits.max_users must be a whole number, 1 or more"),
    ("emulator --limits typo", "typo: $: unknown field max_user; for the names see: pushsdk docs emulator#make"),
    ("emulator --token-file none", "--token-file none: No such file"),
    ("emulator --token-file token", "--token-file token: token must be 1 to 4096 visible ASCII characters"),
    ("emulator --token=s3cret", "--token"),
    ("emulator --host 0.0.0.0", "host 0.0.0.0 admits other machines: pass token= for them, in the shell --token-file"),
    ("emulator --host nowhere.invalid --token-file good", "nowhere.invalid"),
    ("emulator --host a..b --token-file good", "use a host of this machine"),
    ("emulator --store .", "can't be used as a store: it is a folder"),
    (
        "emulator --store . --allow-host=push.test:",
        "hosts[0] must be a name with an optional port, for example push.test:8080; got 'push.test:'",
    ),
    ("emulator exec", "pushsdk: name the command to run: pushsdk emulator exec -- COMMAND ..."),
    ("emulator exec -- no-such-command-1", "pushsdk: can't run no-such-command-1: No such file or directory"),
]


def test_a_wrong_command_line_is_a_usage_error_and_nothing_is_sent(command, service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for line, text in WRONG:
        result = command(line)
        assert result.code == 2, line
        assert not result.out or re.search(r"^users +0\b", result.out, re.MULTILINE)
        assert text in " ".join(result.err.split())
        assert "s3cret" not in result.err
    assert service.requests == 0
    assert {path.name for path in tmp_path.iterdir()} - {"configuration"} == FILES.keys()
