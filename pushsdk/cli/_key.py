"""The Api-Key out of a file or a command. It is in no text, repr or error of this module."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from pushsdk._core.endpoint import HeaderSecret, check_key, sealed
from pushsdk._core.errors import ConfigurationError

__all__ = ["read_key"]

_LARGEST = 64 * 1024
_PATIENCE = 60.0  # seconds: a password manager may ask a person first


def read_key(way: str, value: object, folder: Path) -> HeaderSecret:
    """The key by this way: ``api_key``, ``api_key_file`` or ``api_key_command``.

    Relative paths, of the command too, are below ``folder``. One line end after the key is dropped. Raises
    ConfigurationError.
    """
    if way == "api_key_file":
        return _checked(_of_file(folder / str(value)))
    if way == "api_key_command":
        return _checked(_of_command(str(value), folder))
    return check_key(sealed(value))


def _of_file(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError as error:
        raise ConfigurationError(f"can't read the file: {error.strerror}") from None


def _of_command(command: str, folder: Path) -> bytes:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise ConfigurationError("expected a command and its arguments, quoted as for a shell")
    try:
        # Standard input stays ours: user ids may come by it. What the command says on stderr is for the user.
        ended = subprocess.run(  # noqa: S603 - the user's own command, by no shell
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder, timeout=_PATIENCE, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"can't run the command: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"the command did not end within {_PATIENCE:.0f} s") from None
    if ended.returncode:
        raise ConfigurationError(f"the command failed with exit code {ended.returncode}")
    return ended.stdout


def _checked(content: bytes) -> HeaderSecret:
    text = content.decode("ascii", "replace")
    return check_key(sealed(text.removesuffix("\n").removesuffix("\r")))
