"""``pushsdk doctor``: what it looks at, how it judges, and that it sends nothing."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from support import wire_tls

from pushsdk.cli.commands import doctor
from pushsdk.cli.commands.doctor import probe

KEY = "s3cret-key"


@pytest.fixture(autouse=True)
def _trusting(monkeypatch):
    trusting = wire_tls.client_context()
    monkeypatch.setattr(doctor.ssl, "create_default_context", lambda: trusting)
    monkeypatch.setattr(doctor, "_CONNECT_TIMEOUT", 60.0)


@contextmanager
def listening(context=None, said=None):
    """A server on a port of its own, with TLS or not, that says something and hangs up; what it heard is in a list."""
    heard = []

    def serve():
        with suppress(OSError):
            while True:
                accepted, _ = server.accept()
                with accepted, suppress(OSError):
                    accepted.settimeout(60)
                    if said is not None:
                        accepted.recv(10_000)
                        accepted.sendall(said)
                        continue
                    with accepted if context is None else context.wrap_socket(accepted, server_side=True) as spoken:
                        heard.append(spoken.recv(10_000))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def states(findings):
    return {finding.check: finding.state for finding in findings}


def only(findings, check):
    (finding,) = [finding for finding in findings if finding.check == check]
    return finding


def soon_ended():
    authority = wire_tls._authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=5)).configure_cert(context)
    return context


def test_a_good_certificate_is_shown_with_version_and_dates():
    with listening(wire_tls.good()) as (host, heard):
        findings = list(probe(f"https://{host}/api"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": "ok"}
    text = only(findings, "tls").text
    assert text.startswith("TLSv1.3, certificate valid until ")
    assert " days (" in text
    assert all(each == b"" for each in heard)


@pytest.mark.parametrize(
    ("context", "state", "says"),
    [
        (wire_tls.untrusted, "fail", "the certificate can't be trusted: "),
        (wire_tls.other_host, "fail", "IP address mismatch"),
        (wire_tls.expired, "fail", "certificate has expired"),
        (soon_ended, "warn", ", 4 days"),
    ],
)
def test_a_bad_certificate_is_judged(context, state, says):
    with listening(context()) as (host, _):
        finding = only(list(probe(f"https://{host}")), "tls")
    assert finding.state == state
    assert says in finding.text


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the port does not speak TLS"),
        (b"", "the other side closed the connection"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS failed: "),
    ],
)
def test_a_port_without_tls_is_said(said, says):
    with listening(said=said) as (host, _):
        finding = only(list(probe(f"https://{host}")), "tls")
    assert finding.state == "fail"
    assert says in finding.text


def test_a_reset_in_the_handshake_is_said(monkeypatch):
    def reset(*_args, **_kwargs):
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", reset)
    with socket.create_server(("127.0.0.1", 0)) as server:
        finding = only(list(probe(f"https://127.0.0.1:{server.getsockname()[1]}")), "tls")
    assert (finding.state, finding.text) == ("fail", "TLS failed: Connection reset by peer")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70 + ".example"])
def test_a_name_without_address_ends_it(host):
    (finding,) = probe(f"https://{host}")
    assert (finding.check, finding.state) == ("dns", "fail")
    assert "check the name and the network" in finding.text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "no response"),
        (OSError(), "OSError"),
    ],
)
def test_a_port_that_cannot_be_reached_ends_it(monkeypatch, error, says):
    def fail(*_args):
        raise error

    monkeypatch.setattr(doctor.socket.socket, "connect", fail)
    findings = list(probe("https://127.0.0.1:9"))
    assert states(findings) == {"dns": "ok", "tcp": "fail"}
    assert f"127.0.0.1 port 9: {says}" in findings[-1].text


def test_one_address_of_several_that_fails_is_a_warning(monkeypatch):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
        ]
        real = socket.getaddrinfo
        of_name = lambda host, *rest, **kinds: found if host == "localhost" else real(host, *rest, **kinds)  # noqa: E731
        monkeypatch.setattr(doctor.socket, "getaddrinfo", of_name)
        findings = list(probe(f"http://localhost:{port}"))
    assert [finding.state for finding in findings] == ["ok", "ok", "warn"]


def test_plain_http_elsewhere_is_a_warning(monkeypatch):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(doctor.socket, "getaddrinfo", lambda *_args, **_kwargs: found)
        finding = list(probe(f"http://push.example:{port}"))[-1]
    assert (finding.check, finding.state) == ("tls", "warn")
    assert "the Api-Key can be read on the way" in finding.text


def test_a_proxy_is_looked_at_instead_and_never_shown():
    with listening() as (host, _):
        findings = list(probe("https://push.invalid", f"http://user:passw0rd@{host}"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": "warn"}
    assert "passw0rd" not in repr(findings)


# -- the command --------------------------------------------------------------------------------------------------


def test_all_well_exits_with_0_and_sends_nothing(command, service):
    ended = command("doctor", "--timeout", "5")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split(None, 2) for line in ended.out.splitlines()]
    assert [(state, check) for state, check, _ in lines] == [
        ("ok", "versions"),
        ("ok", "base_url"),
        ("ok", "timeout"),
        ("ok", "api_key"),
        ("ok", "config"),
        ("ok", "dns"),
        ("ok", "tcp"),
    ]
    assert lines[1][2] == f"{service.base_url}, set by PUSHSDK_BASE_URL"
    assert lines[2][2] == "5.0, set by --timeout"
    assert lines[3][2] == "set by PUSHSDK_API_KEY"
    assert service.requests == 0


def test_every_setting_that_is_wrong_is_a_line(command, monkeypatch, tmp_path):
    monkeypatch.setenv("PUSHSDK_API_KEY", f"{KEY} with a space")
    ended = command("doctor", "--base-url", "http://push.example", "--timeout", "0", "--json")
    told = [json.loads(line) for line in ended.out.splitlines()]
    assert [each["check"] for each in told if each["state"] == "fail"] == ["timeout", "api_key", "base_url"]
    assert (ended.code, ended.err) == (4, "")
    assert KEY not in ended.out


def test_a_bad_settings_file_is_a_line(command, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("nonsense")
    ended = command("doctor", "--config", file)
    assert ended.code == 4
    assert f"fail settings            {file}: not a TOML file" in ended.out


def test_what_the_settings_file_says_is_shown_without_the_key(command, service, tmp_path, monkeypatch):
    monkeypatch.delenv("PUSHSDK_API_KEY")
    file = tmp_path / "config.toml"
    file.write_text(f'api_key = "{KEY}"\nproxy = "http://me:passw0rd@127.0.0.1:1"\nallow_insecure = true\n')
    file.chmod(0o600)
    ended = command("doctor", "--config", file)
    assert ended.code == 4
    assert f"{file}: api_key" in ended.out
    assert f"ok   config              {file}\n" in ended.out
    assert KEY not in ended.out
    assert "passw0rd" not in ended.out
