"""``pushsdk demo``: small runs, their output, and a disagreement of client and service."""

import json

from pushsdk.cli.commands import demo as demo_module
from pushsdk.cli.commands.demo import demo, faults_for
from pushsdk.emulator import Emulator


async def test_client_and_service_agree_and_every_fault_acts(capsys):
    assert await demo(users=5000, json=True) == 0
    output = json.loads(capsys.readouterr().out)
    assert [output[name] for name in ("lost", "doubled", "wrong", "campaigns")] == [0, 0, 0, 1]
    assert len(output["hits"]) == len(faults_for(5000, "ann"))
    assert all(output["hits"].values())
    reported = output["client"]
    received = output["service"]
    assert reported["ACCEPTED"] == received["ACCEPTED"] >= 0.9 * 5500
    assert sum(reported.values()) == 5500
    assert reported["REJECTED"] == 1
    assert "NOT_SENT" not in reported
    assert 0 < received["UNKNOWN"] < reported["UNKNOWN"]


async def test_a_disagreement_exits_with_1(monkeypatch, capsys):
    monkeypatch.setattr(Emulator, "users", lambda self: {})
    assert await demo(users=5000) == 1
    assert "They disagree: lost=" in capsys.readouterr().out


async def test_the_output_fits_80_columns_and_shows_no_user_and_no_key(monkeypatch, capsys):
    services = []
    monkeypatch.setattr(demo_module, "Emulator", lambda **options: services.append(Emulator(**options)) or services[0])
    assert await demo(users=5000) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "Every user is accounted for, and nobody was pushed twice." in out
    assert all(fault.name in out for fault in faults_for(5000, "ann"))
    assert all(user not in out + err for user in services[0].users())
    assert services[0].api_key not in out + err
