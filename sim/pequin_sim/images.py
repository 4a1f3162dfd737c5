"""Files that a simulation's RAM is loaded from and dumped to.

The words follow each other in order of address, each as little-endian bytes, padded with zeros to
a multiple of four bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pequin.errors import InputError

_UNIT = 4


def _stride(word_bytes: int) -> int:
    return -(-word_bytes // _UNIT) * _UNIT


def write_image(path: Path, words: npt.NDArray[np.uint8]) -> None:
    """Write a RAM image.

    Parameters
    ----------
    path
        The file, for plusarg `+NAME.load=`.
    words
        uint8 [words, bytes of a word], byte 0 the least significant.

    Raises
    ------
    InputError
        The array has another shape or type.
    """
    if words.ndim != 2 or words.dtype != np.uint8 or words.shape[1] == 0:
        raise InputError(
            f"a RAM image is a uint8 array [words, bytes], not {words.dtype} {list(words.shape)}"
        )
    count, word_bytes = words.shape
    padded = np.zeros((count, _stride(word_bytes)), np.uint8)
    padded[:, :word_bytes] = words
    Path(path).write_bytes(padded.tobytes())


def read_image(path: Path, word_bytes: int) -> npt.NDArray[np.uint8]:
    """Read a RAM image: uint8 [words, `word_bytes`].

    Parameters
    ----------
    path
        A file written by plusarg `+NAME.dump=` or by `write_image`.
    word_bytes
        Bytes of a word: its width divided by 8, rounded up.

    Raises
    ------
    InputError
        `word_bytes` is not positive, or the file is no whole number of such words.
    """
    if word_bytes < 1:
        raise InputError(f"word_bytes must be at least 1, not {word_bytes}")
    flat = np.frombuffer(Path(path).read_bytes(), np.uint8)
    stride = _stride(word_bytes)
    if flat.size % stride:
        raise InputError(
            f"{path} has {flat.size} bytes, which is no multiple of the {stride} that a word of "
            f"{word_bytes} bytes takes"
        )
    return flat.reshape(-1, stride)[:, :word_bytes].copy()
