"""Where built simulations are kept, and how two processes share them safely."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pequin.errors import ToolError


def cache_root(cache_dir: Path | None = None) -> Path:
    """Return the cache's directory: the argument, else $PEQUIN_CACHE, else ~/.cache/pequin.

    Raises
    ------
    ToolError
        The directory cannot be made or written, or its path holds a space (make cannot build
        in such a place).
    """
    root = cache_dir or Path(os.environ.get("PEQUIN_CACHE") or Path.home() / ".cache" / "pequin")
    root = Path(root).expanduser().absolute()
    fix = "set PEQUIN_CACHE to a directory that can be written"
    if " " in str(root):
        raise ToolError(f"the build cache {str(root)!r} has a space in its path: {fix}")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(
            f"the build cache {root} cannot be made ({error.strerror}): {fix}"
        ) from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise ToolError(f"the build cache {root} cannot be written: {fix}")
    return root


def digest(inputs: Mapping[str, Any]) -> str:
    """Return the key of a build: a hash of everything that can change its result."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def obtain(root: Path, key: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """Return the directory of a build, making it first where it is missing.

    A second process that wants the same build waits for the first. A directory appears under
    its key only when it is complete, so an interrupted build leaves nothing to trip over.

    Parameters
    ----------
    root
        The cache.
    key
        Name of the build.
    build
        Fills an empty directory with the build.

    Returns
    -------
    tuple
        The directory, and whether it was there already.
    """
    final = root / key
    if final.is_dir():
        return final, True
    locks = root / "locks"
    locks.mkdir(exist_ok=True)
    with _locked(locks / key):
        if final.is_dir():
            return final, True
        for stale in root.glob(f"building-{key}-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"building-{key}-", dir=root))
        try:
            build(work)
            work.chmod(0o755)
            # On a file system without working locks another process may have been quicker.
            with contextlib.suppress(OSError):
                work.rename(final)
            if not final.is_dir():
                raise ToolError(f"the build cache {root} cannot be written")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final, False
