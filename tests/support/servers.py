"""Real servers from Debian packages, each in a temporary folder and stopped with its starter."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

# Seconds after which a server that does not answer is taken to hang.
HANGS = 300.0
# The server runs until the pipe from this process closes, however this process ends.
GUARDED = 'signal=$1; shift; "$@" & child=$!; read _; kill -s "$signal" $child; wait $child'


class Server:
    """A server that runs."""

    def __init__(self, url, ready, command, *, signal, env):
        self.url = url
        self._ready = ready
        self._command = ["sh", "-c", GUARDED, "sh", signal, *command]
        self._env = env
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Until it takes connections."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._env
        )
        until = time.monotonic() + HANGS
        while not self._ready():
            assert self._process.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server takes no connections"
            time.sleep(0.02)

    def stop(self):
        """Kill the server as a crash would. May be called again."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(HANGS)
            self._process = None


@contextmanager
def redis_server(*options, tcp=False, durable=False):
    """Start a Redis with these options that writes nothing to disk (with ``durable``: an AOF, synced every second).

    ``tcp`` adds a port on 127.0.0.1, for clients without Unix sockets.
    """
    command = _find("redis-server")
    with _folder("nobody") as (folder, as_user):
        sock = folder / "redis.sock"
        port = free_port() if tcp else 0
        words = [*as_user, command, "--bind", "127.0.0.1", "--port", str(port), "--unixsocket", str(sock)]
        words += ["--save", "", "--dir", str(folder), "--appendonly", "yes" if durable else "no", *options]
        url = f"redis://127.0.0.1:{port}/0" if tcp else f"unix://{sock}"
        with Server(url, lambda: _answers(sock), words, signal="KILL", env=dict(os.environ)) as server:
            yield server


@contextmanager
def postgres_server(*options, durable=False):
    """Start a PostgreSQL with these settings that syncs to disk only if ``durable``.

    Runs as the user postgres if this process is root, as PostgreSQL refuses to run as root.
    """
    initdb = _find("initdb")
    postgres = _find("postgres")
    with _folder("postgres") as (folder, as_user):
        data = folder / "data"
        env = {**os.environ, "LC_ALL": "C", "PGDATA": str(folder / "data")}
        subprocess.run(
            [*as_user, initdb, "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", str(data)],
            env=env,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        fsync = f"fsync={'on' if durable else 'off'}"
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", fsync, "shared_buffers=16MB", *options)
        words = [*as_user, postgres, *(word for setting in settings for word in ("-c", setting))]
        url = f"postgresql://postgres@/postgres?host={folder}"
        # Its last line, once it is up.
        state = data / "postmaster.pid"
        with Server(
            url, lambda: state.exists() and state.read_text().endswith("ready   \n"), words, signal="QUIT", env=env
        ) as server:
            yield server


@contextmanager
def _folder(user):
    """Return a new folder and the prefix of commands that use it, which switches the user if this process is root."""
    # Not pytest's: a socket's path is a hundred bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="pushsdk-server-"))
    as_user = []
    if os.getuid() == 0:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        as_user = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
        # The user of the test process needs access too.
        folder.chmod(0o755)
    try:
        yield folder, as_user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find(command):
    """Return the path of the command. Otherwise skip the test, or fail if servers are required."""
    # Debian keeps PostgreSQL's commands out of the way, by version.
    places = [shutil.which(command), *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{command}"), reverse=True)]
    for place in filter(None, places):
        return place
    reason = f"{command} is not installed (Debian: apt-get install redis-server postgresql)"
    if os.environ.get("PUSHSDK_REQUIRE_SERVERS"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_port():
    """Return a port of 127.0.0.1 on which nothing listens. No other program gets it while this process runs."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.detach()  # it stays bound; a server can bind it too
    return port


def _answers(path):
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return False
        return True
