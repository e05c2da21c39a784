"""``pushsdk config`` and ``doctor``: settings, checks and findings, without a request."""

import json
import re
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from support import wire_tls
from support.servers import redis_server

from pushsdk.cli.commands import doctor
from pushsdk.cli.commands.doctor import probe


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


def expiring():
    authority = wire_tls._authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=5)).configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("context", "greeting", "state", "text"),
    [
        (wire_tls.good, None, "ok", r"TLSv1\.3, certificate valid until .* days \("),
        (wire_tls.untrusted, None, "fail", "the certificate can't be trusted: "),
        (wire_tls.expired, None, "fail", "certificate has expired"),
        (expiring, None, "warn", ", 4 days"),
        (lambda: None, b"HTTP/1.1 400 Bad Request\r\n\r\n", "fail", "the port does not speak TLS"),
        (lambda: None, b"\x15\x03\x03\x00\x02\x02\x28", "fail", "TLS failed: "),
    ],
)
def test_the_certificate_is_reported_and_nothing_is_sent(context, greeting, state, text):
    with listening(context(), greeting) as (host, received):
        findings = list(probe(f"https://{host}/api"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": state}
    assert re.search(text, findings[-1].text)
    assert set(received) <= {b""}


def test_a_reset_in_the_handshake_is_reported(monkeypatch):
    def reset(*_args, **_kwargs):
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", reset)
    with socket.create_server(("127.0.0.1", 0)) as server:
        *_, finding = probe(f"https://127.0.0.1:{server.getsockname()[1]}")
    assert finding.state == "fail"
    assert finding.text == "TLS failed: Connection reset by peer"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70 + ".example"])
def test_a_name_without_an_address_is_the_last_finding(host):
    (finding,) = probe(f"https://{host}")
    assert finding.check == "dns"
    assert finding.state == "fail"
    assert "check the name and the network" in finding.text


@pytest.mark.parametrize(
    ("error", "text"), [(ConnectionRefusedError(111, "refused"), "refused"), (TimeoutError(), "no response")]
)
def test_an_unreachable_port_is_the_last_finding(monkeypatch, error, text):
    def fail(*_args):
        raise error

    monkeypatch.setattr(doctor.socket.socket, "connect", fail)
    findings = list(probe("https://127.0.0.1:9"))
    assert states(findings) == {"dns": "ok", "tcp": "fail"}
    assert f"127.0.0.1 port 9: {text}" in findings[-1].text


@pytest.fixture
def resolve(monkeypatch):
    """A function that makes a host name resolve to these ports of 127.0.0.1."""

    def resolving(name, *ports):
        real = socket.getaddrinfo
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        lookup = lambda host, *rest, **kinds: found if host == name else real(host, *rest, **kinds)  # noqa: E731
        monkeypatch.setattr(doctor.socket, "getaddrinfo", lookup)

    return resolving


def test_an_unreachable_address_beside_a_reachable_one_is_a_warning(resolve):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        resolve("localhost", port, 1)
        findings = list(probe(f"http://localhost:{port}"))
    assert [finding.state for finding in findings] == ["ok", "ok", "warn"]


def test_plain_http_to_another_machine_is_a_warning(resolve):
    with listening() as (host, _):
        port = int(host.rpartition(":")[2])
        resolve("push.example", port)
        finding = list(probe(f"http://push.example:{port}"))[-1]
    assert finding.check == "tls"
    assert finding.state == "warn"
    assert "the Api-Key can be read on the way" in finding.text


def test_a_proxy_is_checked_instead_of_the_service_and_its_password_stays_hidden():
    with listening() as (host, _):
        findings = list(probe("https://push.invalid", f"http://user:passw0rd@{host}"))
    assert states(findings) == {"dns": "ok", "tcp": "ok", "tls": "warn"}
    assert "passw0rd" not in repr(findings)


# -- the command --------------------------------------------------------------------------------------------------


def test_an_address_with_a_password_is_refused_and_not_repeated(command):
    result = command("doctor --base-url https://me:passw0rd@push.example")
    assert result.code == 4
    assert "passw0rd" not in result.out + result.err


def test_good_settings_exit_with_0_and_nothing_is_sent(command, service, tmp_path):
    result = command("doctor --timeout 5")
    assert result.code == 0
    assert result.err == ""
    assert service.requests == 0
    findings = {
        check: (state, text) for state, check, text in (line.split(None, 2) for line in result.out.splitlines())
    }
    assert [*findings] == ["versions", "base_url", "timeout", "api_key", "config", "dns", "tcp", "limit", "request"]
    assert {state for state, _ in findings.values()} == {"ok", "skip"}
    assert findings["base_url"][1] == f"{service.base_url}, set by PUSHSDK_BASE_URL"
    assert findings["timeout"][1] == "5, set by --timeout"
    assert findings["api_key"][1] == "***, set by PUSHSDK_API_KEY"
    assert findings["config"][1].endswith("/configuration/pushsdk/config.toml does not exist")
    assert "  pushsdk send USER_ID --title Test --timeout 5  " in findings["request"][1]


def test_the_claim_store_is_opened_and_its_settings_are_findings(command, service, monkeypatch, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with redis_server("--maxmemory-policy", "volatile-lru") as server:
        for claims, expected in (
            (f"sqlite:{tmp_path}/missing.db", []),
            (f"sqlite:{tmp_path}/open/missing.db", [("fail", "the folder of the claim store can't be used")]),
            (
                "postgres://s3cret@127.0.0.1:1/x",
                [("fail", "***@127.0.0.1:1/x: the claim store failed (ConnectionRefusedError: Connection refused")],
            ),
            (server.url, [("warn", "maxmemory-policy volatile-lru"), ("warn", "set appendonly yes")]),
        ):
            monkeypatch.setenv("PUSHSDK_CLAIMS", claims)
            found = [json.loads(line) for line in command("doctor --json").out.splitlines()]
            _, *found = [finding for finding in found if finding["check"] == "claims"]
            for (state, text), finding in zip(expected, found, strict=True):
                assert finding["state"] == state
                assert text in finding["text"]
                assert "s3cret" not in finding["text"]
    assert not (tmp_path / "missing.db").exists()


def test_a_bad_settings_file_is_a_finding(command, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("nonsense")
    result = command("doctor --config", file)
    assert result.code == 4
    assert f"fail settings            {file}: not a TOML file" in result.out


def test_config_prints_every_value_and_its_source(command, service, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("in_flight = 3\n[profiles.staging]\nretry = 'none'")
    words = f"config --config {file} --profile staging --timeout 7.5"
    settings = json.loads(command(f"{words} --json").out)
    assert {name: tuple(setting.values()) for name, setting in settings.items() if setting["source"] != "default"} == {
        "base_url": (service.base_url, "variable", "PUSHSDK_BASE_URL"),
        "timeout": (7.5, "option", "--timeout"),
        "retry": ("none", "profile", f"{file}: profiles.staging.retry"),
        "in_flight": (3, "file", f"{file}: in_flight"),
        "api_key": ("***", "variable", "PUSHSDK_API_KEY"),
        "config": (str(file), "option", "--config"),
        "profile": ("staging", "option", "--profile"),
    }
    lines = [re.split("  +", line) for line in command(words).out.splitlines()]
    assert [name for name, _, _ in lines] == [*settings]
    assert ["in_flight", "3", f"{file}: in_flight"] in lines
    assert ["rate", "no limit", "default"] in lines


def test_config_names_wrong_settings_on_stderr(command, service):
    words = "config --timeout 0 --proxy http://me:passw0rd@"
    result = command(words)
    assert result.code == 4
    assert "timeout              not valid" in result.out
    assert "pushsdk: --timeout must be a number of seconds greater than 0; got 0.0\npushsdk: --proxy: " in result.err
    settings = json.loads(command(f"{words} --json").out)
    assert settings["timeout"] == {"value": None, "source": "option", "set_by": "--timeout"}
    assert "passw0rd" not in f"{result}{settings}"


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("PROXY", "http://me:p@ss@proxy.example:3128", "http://***@proxy.example:3128"),
        ("PROXY", "me:passw0rd@proxy.example", "***"),
        ("CLAIMS", "redis://:pass@cache", "redis://***@cache"),
        ("CLAIMS", "postgresql://db/push?password=pass&a=1", "postgresql://db/push?***"),
        ("CLAIMS", "postgresql:pass", "***"),
    ],
)
def test_config_hides_passwords(command, monkeypatch, variable, value, shown):
    monkeypatch.setenv(f"PUSHSDK_{variable}", value)
    assert json.loads(command("config --json").out)[variable.lower()]["value"] == shown


@pytest.mark.parametrize("words", ["config", "doctor"])
def test_a_variable_that_is_none_of_ours_is_a_warning(command, service, monkeypatch, words):
    misspelled = {
        "PUSHSDK_BASEURL": "PUSHSDK_BASE_URL",
        "pushsdk_timeout": "PUSHSDK_TIMEOUT",
        "PUSHSDK_LOGS": "PUSHSDK_LOG",
    }
    monkeypatch.setenv("HTTPS_PROXY", "http://s3cret@proxy.example:3128")
    for name in (*misspelled, "PUSHSDK_ZZZ\x1b[2J", "PUSHSDK_CLAIMS", "PUSHSDK_SHOW_ANSWERS", "PUSHSDKX"):
        monkeypatch.setenv(name, "s3cret")
    result = command(words)
    printed = " ".join((result.out + result.err).split())
    for name, near in misspelled.items():
        assert re.search(f"{name}:? not a pushsdk variable, so it is ignored: did you mean {near}[?]", printed)
    assert re.search(
        "PUSHSDK_ZZZ\ufffd.2J:? not a pushsdk variable, so it is ignored: for the variables see: ", printed
    )
    assert re.search("HTTPS_PROXY:? not read by pushsdk: to send through a proxy, set PUSHSDK_PROXY", printed)
    assert not re.search("(PUSHSDK_CLAIMS|PUSHSDK_SHOW_ANSWERS|PUSHSDKX):? no variable", printed)
    assert "s3cret" not in printed
    assert "\x1b" not in printed


def test_a_key_too_short_to_be_masked_is_a_warning(command, service, monkeypatch):
    monkeypatch.setenv("PUSHSDK_API_KEY", "k" * 5)
    result = command("doctor")
    assert "warn api_key             under 6 characters: it is not masked" in result.out
    assert result.code == 0
