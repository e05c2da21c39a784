"""``pushsdk doctor``: its checks and findings, without a request."""

import json
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from support import wire_tls

from pushsdk import AsyncPushClient, RetryPolicy
from pushsdk.cli.commands import doctor
from pushsdk.cli.commands.doctor import probe
from pushsdk.cli.settings import DEFAULTS

KEY = "s3cret-key"


@pytest.fixture(autouse=True)
def _trusting(monkeypatch):
    trusting = wire_tls.client_context()
    monkeypatch.setattr(doctor.ssl, "create_default_context", lambda: trusting)
    monkeypatch.setattr(doctor, "_CONNECT_TIMEOUT", 60.0)


@contextmanager
def listening(context=None, greeting=None):
    """Run a server, with TLS or without, that greets and closes; yield its address and the received bytes."""
    received = []

    def serve():
        with suppress(OSError):
            while True:
                accepted, _ = server.accept()
                with accepted, suppress(OSError):
                    accepted.settimeout(60)
                    if greeting is not None:
                        accepted.recv(10_000)
                        accepted.sendall(greeting)
                        continue
                    with accepted if context is None else context.wrap_socket(accepted, server_side=True) as spoken:
                        received.append(spoken.recv(10_000))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", received
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def states(findings):
    return {finding.check: finding.state for finding in findings}


def only(findings, check):
    (finding,) = [finding for finding in findings if finding.check == check]
    return finding


def expiring():
    authority = wire_tls._authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=5)).configure_cert(context)
    return context


def test_a_good_certificate_is_reported_with_version_and_date():
    with listening(wire_tls.good()) as (host, received):
        findings = list(probe(f"https://{host}/api"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": "ok"}
    text = only(findings, "tls").text
    assert text.startswith("TLSv1.3, certificate valid until ")
    assert " days (" in text
    assert all(item == b"" for item in received)


@pytest.mark.parametrize(
    ("context", "state", "text"),
    [
        (wire_tls.untrusted, "fail", "the certificate can't be trusted: "),
        (wire_tls.other_host, "fail", "IP address mismatch"),
        (wire_tls.expired, "fail", "certificate has expired"),
        (expiring, "warn", ", 4 days"),
    ],
)
def test_a_bad_certificate_is_reported(context, state, text):
    with listening(context()) as (host, _):
        finding = only(list(probe(f"https://{host}")), "tls")
    assert finding.state == state
    assert text in finding.text


@pytest.mark.parametrize(
    ("greeting", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the port does not speak TLS"),
        (b"", "the other side closed the connection"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS failed: "),
    ],
)
def test_a_port_without_tls_is_reported(greeting, text):
    with listening(greeting=greeting) as (host, _):
        finding = only(list(probe(f"https://{host}")), "tls")
    assert finding.state == "fail"
    assert text in finding.text


def test_a_reset_in_the_handshake_is_reported(monkeypatch):
    def reset(*_args, **_kwargs):
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", reset)
    with socket.create_server(("127.0.0.1", 0)) as server:
        finding = only(list(probe(f"https://127.0.0.1:{server.getsockname()[1]}")), "tls")
    assert (finding.state, finding.text) == ("fail", "TLS failed: Connection reset by peer")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70 + ".example"])
def test_a_name_without_an_address_is_the_last_finding(host):
    (finding,) = probe(f"https://{host}")
    assert (finding.check, finding.state) == ("dns", "fail")
    assert "check the name and the network" in finding.text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "no response"),
        (OSError(), "OSError"),
    ],
)
def test_an_unreachable_port_is_the_last_finding(monkeypatch, error, text):
    def fail(*_args):
        raise error

    monkeypatch.setattr(doctor.socket.socket, "connect", fail)
    findings = list(probe("https://127.0.0.1:9"))
    assert states(findings) == {"dns": "ok", "tcp": "fail"}
    assert f"127.0.0.1 port 9: {text}" in findings[-1].text


def test_an_unreachable_address_beside_a_reachable_one_is_a_warning(monkeypatch):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
        ]
        real = socket.getaddrinfo
        of_name = lambda host, *warnings, **kinds: addresses if host == "localhost" else real(host, *warnings, **kinds)  # noqa: E731
        monkeypatch.setattr(doctor.socket, "getaddrinfo", of_name)
        findings = list(probe(f"http://localhost:{port}"))
    assert [finding.state for finding in findings] == ["ok", "ok", "warn"]


def test_plain_http_to_another_machine_is_a_warning(monkeypatch):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(doctor.socket, "getaddrinfo", lambda *_args, **_kwargs: addresses)
        finding = list(probe(f"http://push.example:{port}"))[-1]
    assert (finding.check, finding.state) == ("tls", "warn")
    assert "the Api-Key can be read on the way" in finding.text


def test_a_proxy_is_checked_instead_of_the_service_and_its_password_stays_hidden():
    with listening() as (host, _):
        findings = list(probe("https://push.invalid", f"http://user:passw0rd@{host}"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": "warn"}
    assert "passw0rd" not in repr(findings)


# -- the command --------------------------------------------------------------------------------------------------


def test_good_settings_exit_with_0_and_nothing_is_sent(command, service, tmp_path):
    result = command("doctor", "--timeout", "5")
    assert (result.code, result.err) == (0, "")
    lines = [line.split(None, 2) for line in result.out.splitlines()]
    assert [(state, check) for state, check, _ in lines] == [
        ("ok", "versions"),
        ("ok", "base_url"),
        ("ok", "timeout"),
        ("ok", "api_key"),
        ("ok", "config"),
        ("ok", "attempt_timeout"),
        ("ok", "retry"),
        ("ok", "dns"),
        ("ok", "tcp"),
        ("ok", "limit"),
        ("skip", "request"),
    ]
    assert lines[1][2] == f"{service.base_url}, set by PUSHSDK_BASE_URL"
    assert lines[2][2] == "5.0, set by --timeout"
    assert lines[3][2] == "***, set by PUSHSDK_API_KEY"
    assert lines[4][2] == f"no settings file: {tmp_path}/configuration/pushsdk/config.toml does not exist"
    assert lines[5][2] == "10.0, the default"
    assert lines[-1][2] == "not tried: whether the service accepts the Api-Key, the path and a message"
    assert service.requests == 0


def test_every_wrong_setting_is_a_finding(command, monkeypatch, tmp_path):
    monkeypatch.setenv("PUSHSDK_API_KEY", f"{KEY} with a space")
    result = command("doctor", "--base-url", "http://push.example", "--timeout", "0", "--json")
    findings = [json.loads(line) for line in result.out.splitlines()]
    assert [item["check"] for item in findings if item["state"] == "fail"] == ["timeout", "api_key", "base_url"]
    assert (result.code, result.err) == (4, "")
    assert KEY not in result.out


def test_a_bad_settings_file_is_a_finding(command, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("nonsense")
    result = command("doctor", "--config", file)
    assert result.code == 4
    assert f"fail settings            {file}: not a TOML file" in result.out


def test_settings_of_a_file_are_shown_without_key_and_password(command, service, tmp_path, monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY")
    file = tmp_path / "config.toml"
    file.write_text(f'api_key = "{KEY}"\nproxy = "http://me:passw0rd@127.0.0.1:1"\nallow_insecure = true\n')
    file.chmod(0o600)
    result = command("doctor", "--config", file)
    assert result.code == 4
    assert f"{file}: api_key" in result.out
    assert f"ok   config              {file}\n" in result.out
    assert KEY not in result.out
    assert "passw0rd" not in result.out


def test_config_shows_each_setting_with_its_source(command, service, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(f'timeout = 7.5\n[profiles.staging]\nretry = "none"\napi_key = "{KEY}"\n')
    file.chmod(0o600)
    result = command("config", "--config", file, "--profile", "staging", "--json")
    assert (result.code, result.err, service.requests) == (0, "", 0)
    assert {(item["check"], item["text"]) for item in map(json.loads, result.out.splitlines())} == {
        ("config", str(file)),
        ("base_url", f"{service.base_url}, set by PUSHSDK_BASE_URL"),
        ("timeout", f"7.5, set by {file}: timeout"),
        ("attempt_timeout", "10.0, the default"),
        ("retry", f"none, set by {file}: profiles.staging.retry"),
        ("api_key", f"***, set by {file}: profiles.staging.api_key"),
    }


@pytest.mark.parametrize("words", ["config", "doctor"])
def test_a_variable_that_is_none_of_ours_is_a_warning(command, service, monkeypatch, words):
    misspelled = {
        "PUSHSDK_BASEURL": "PUSHSDK_BASE_URL",
        "pushsdk_timeout": "PUSHSDK_TIMEOUT",
        "PUSHSDK_LOGS": "PUSHSDK_LOG",
    }
    for name in (*misspelled, "PUSHSDK_ZZZ\x1b[2J", "PUSHSDK_CLAIMS", "PUSHSDK_SHOW_ANSWERS", "PUSHSDKX"):
        monkeypatch.setenv(name, "s3cret")
    result = command(words, "--json")
    findings = {finding["check"]: finding for finding in map(json.loads, result.out.splitlines())}
    for name, near in misspelled.items():
        assert findings[name]["state"] == "warn"
        assert findings[name]["text"] == f"no variable of pushsdk, so it is ignored: did you mean {near}?"
    assert findings["PUSHSDK_ZZZ\x1b[2J"]["text"].endswith("for the variables see: pushsdk docs cli")
    assert not {"PUSHSDK_CLAIMS", "PUSHSDK_SHOW_ANSWERS", "PUSHSDKX"} & findings.keys()
    assert "s3cret" not in result.out
    assert "warn PUSHSDK_BASEURL     no variable of pushsdk" in command(words).out
    assert "\x1b" not in command(words).out


def test_the_defaults_that_config_shows_are_those_of_the_client():
    client = AsyncPushClient("https://push.example", KEY)
    timeout = client._options.timeout
    assert {"timeout": timeout.total, "attempt_timeout": timeout.attempt} == {
        name: value for name, value in DEFAULTS.items() if name != "retry"
    }
    assert client._options.policy == getattr(RetryPolicy, DEFAULTS["retry"])()
