"""Writing result files: checked before long work, complete or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from pequin.errors import InputError


def check_writable(path: Path) -> Path:
    """Check that a file can be written at `path`, and leave nothing there.

    Raises
    ------
    InputError
        It cannot; the message says why.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory")
    parent = path.parent
    if not parent.is_dir():
        raise InputError(f"cannot write {path}: there is no directory {parent}")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    Path(name).unlink()
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"cannot write {path}: Permission denied")
    return path


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old or the new one, never a part.

    Raises
    ------
    InputError
        It cannot be written.
    """
    path = Path(path)
    raw = data.encode() if isinstance(data, str) else data
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as output:
                output.write(raw)
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
