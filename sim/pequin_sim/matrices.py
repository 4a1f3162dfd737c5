"""Reading and generating the matrices that a user multiplies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, TileConfig
from pequin.errors import InputError

Matrix = npt.NDArray[np.float32]

_MAGIC = b"\x93NUMPY"


def load_matrix(path: Path) -> Matrix:
    """Read a real, finite matrix from an .npy file.

    Parameters
    ----------
    path
        A file written by `numpy.save`: two dimensions, float16, float32 or float64 of either
        byte order. Values are rounded to float32.

    Raises
    ------
    InputError
        The file cannot be read, is not an .npy file, holds Python objects (pickle is never
        loaded), is cut short, or its content is not such a matrix. The message names the file
        and, for a NaN or an infinity, the place.
    """
    array = _open(Path(path))
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputError(
            f"{path} holds {array.dtype}; it must be float32 (float16 and float64 are "
            "converted): save it with .astype(numpy.float32)"
        )
    if array.ndim != 2:
        raise InputError(
            f"{path} has {array.ndim} dimensions, shape {array.shape}; a matrix has 2: reshape it"
        )
    if 0 in array.shape:
        raise InputError(f"{path} is empty: shape {array.shape}")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    _reject_non_finite(values, array, str(path))
    return values


def _open(path: Path) -> npt.NDArray[np.generic]:
    """Map the file's array: a header that claims more than the file holds costs nothing."""
    try:
        with path.open("rb") as handle:
            start = handle.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if start[:2] == b"PK":
        raise InputError(f"{path} is a zip archive (.npz?), not an .npy file: save one array in it")
    if start != _MAGIC:
        raise InputError(f"{path} is not an .npy file: write it with numpy.save")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OverflowError, OSError) as error:
        if "Python objects" in str(error):
            raise InputError(
                f"{path} holds pickled Python objects, which are refused: "
                "save it with .astype(numpy.float32)"
            ) from error
        raise InputError(f"{path} is not a whole .npy file: {error}") from error
    return np.asarray(array)


def _reject_non_finite(values: Matrix, original: npt.NDArray[np.generic], name: str) -> None:
    good = np.isfinite(values)
    if good.all():
        return
    row, column = (int(i) for i in np.argwhere(~good)[0])
    reason = "" if not np.isfinite(original[row, column]) else " (beyond the float32 range)"
    raise InputError(
        f"{name}: row {row}, column {column} is {original[row, column]}{reason}; every value must "
        f"be finite ({np.count_nonzero(~good)} of {good.size} values are not)"
    )


def check_shape(
    weights: tuple[int, ...],
    acts: tuple[int, ...],
    config: TileConfig,
    names: tuple[str, str] = ("W", "X"),
) -> None:
    """Check that a tile can multiply matrices of two shapes.

    Parameters
    ----------
    weights, acts
        Shapes of W, (N, K), and of X, (C, K).
    config
        The tile, for its `max_k`.
    names
        What messages call them.

    Raises
    ------
    InputError
        The two K differ, K is not a multiple of 32, or K is above the tile's `max_k`. The
        message says what to do.
    """
    w, x = names
    k = weights[1]
    if acts[1] != k:
        hint = ""
        if acts[0] == k:
            hint = f"; {x} looks transposed: it has one row per vector (C x K)"
        elif acts[1] == weights[0]:
            hint = f"; {w} looks transposed: it has one row per output (N x K)"
        raise InputError(
            f"{w} is {_by(weights)} and {x} is {_by(acts)}: their second dimensions (K) must be "
            f"equal, but they are {k} and {acts[1]}{hint}"
        )
    if k % BLOCK:
        pad = -k % BLOCK
        raise InputError(
            f"K = {k} of {w} and {x} is not a multiple of the block size {BLOCK}: pad both with "
            f"{pad} zero columns, numpy.pad(a, ((0, 0), (0, {pad}))); the product stays the same"
        )
    if k > config.max_k:
        raise InputError(
            f"K = {k} of {w} and {x} is above preset {config.name}'s max_k = {config.max_k}: "
            f"choose a preset with a larger max_k, or multiply column slices of at most "
            f"{config.max_k} and add the products"
        )


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def generate(rows: int, k: int, vectors: int, seed: int) -> tuple[Matrix, Matrix]:
    """Return random W [rows, k] and X [vectors, k].

    The values are normal; those of W have the standard deviation 1 / sqrt(k), so that results
    are of the order of 1. The same arguments give the same values.
    """
    random = np.random.default_rng(seed)
    weights = random.standard_normal((rows, k), dtype=np.float32) / np.float32(np.sqrt(k))
    return weights, random.standard_normal((vectors, k), dtype=np.float32)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return (N, K, C) of a text such as `256x2880x16`.

    Raises
    ------
    InputError
        The text is not three positive whole numbers.
    """
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(
        part.isascii() and part.isdigit() and int(part) for part in parts
    ):
        raise InputError(
            f"a shape is NxKxC, three positive whole numbers such as 256x2880x16, not {text!r}"
        )
    rows, k, vectors = map(int, parts)
    return rows, k, vectors
