"""Files and shapes that users bring."""

import io
import pickle

import numpy as np
import pytest

from pequin.config import TileConfig
from pequin.errors import InputError
from pequin_sim.matrices import check_shape, generate, load_matrix, parse_shape

TINY = TileConfig.preset("tiny")


@pytest.fixture
def save(tmp_path):
    def save(content, name="W.npy"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.save(path, content, allow_pickle=True)
        return path

    return save


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


MATRIX = np.arange(64, dtype=np.float32).reshape(2, 32) / 8


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", ">f8"])
def test_floating_point_files_become_float32(save, dtype):
    loaded = load_matrix(save(MATRIX.astype(dtype)))
    assert loaded.dtype == np.float32
    assert (loaded == MATRIX).all()


def test_a_fortran_ordered_file_keeps_its_shape(save):
    loaded = load_matrix(save(np.asfortranarray(MATRIX)))
    assert loaded.flags.c_contiguous
    assert (loaded == MATRIX).all()


WHOLE = npy(MATRIX)

BROKEN_FILES = {
    "text": (b"1.0 2.0\n", "is not an .npy file: write it with numpy.save"),
    "nothing": (b"", "is not an .npy file"),
    "a pickle": (pickle.dumps([1.0]), "is not an .npy file"),
    "an archive": (b"PK\x03\x04rest", "is a zip archive"),
    "a cut magic": (WHOLE[:6], "is not a whole .npy file"),
    "a cut header": (WHOLE[:40], "is not a whole .npy file"),
    "cut data": (WHOLE[:-4], "is not a whole .npy file"),
    "a huge claim": (WHOLE.replace(b"(2, 32), }    ", b"(99999999, 32)}"), "not a whole .npy file"),
}


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_broken_files_are_named(save, kind):
    content, message = BROKEN_FILES[kind]
    path = save(content)
    with pytest.raises(InputError, match=message) as caught:
        load_matrix(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_python_objects_are_never_unpickled(save, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = save(np.array([[Trap()]], dtype=object))
    (tmp_path / "sprung").unlink(missing_ok=True)
    with pytest.raises(InputError, match="holds pickled Python objects, which are refused"):
        load_matrix(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (MATRIX.astype(np.int32), "holds int32; it must be float32"),
        (MATRIX.astype(np.complex64), "holds complex64"),
        (MATRIX.astype(bool), "holds bool"),
        (MATRIX.astype(np.longdouble), "holds float128"),
        (MATRIX[0], r"has 1 dimensions, shape \(32,\); a matrix has 2"),
        (MATRIX[np.newaxis], "has 3 dimensions"),
        (np.float32(1.0), "has 0 dimensions"),
        (MATRIX[:0], r"is empty: shape \(0, 32\)"),
        (MATRIX[:, :0], r"is empty: shape \(2, 0\)"),
    ],
)
def test_arrays_that_are_no_real_matrix_are_refused(save, array, message):
    if message.endswith("float128") and np.dtype(np.longdouble).itemsize != 16:
        pytest.skip("this machine's long double is not float128")
    with pytest.raises(InputError, match=message):
        load_matrix(save(np.asarray(array)))


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_values_that_are_not_finite_are_placed(save, value, shown):
    matrix = MATRIX.copy()
    matrix[1, 7] = matrix[1, 9] = value
    with pytest.raises(InputError, match=rf"row 1, column 7 is {shown}; .*\(2 of 64 values"):
        load_matrix(save(matrix))


def test_a_float64_beyond_float32_is_placed(save):
    matrix = MATRIX.astype(np.float64)
    matrix[0, 3] = 1e39
    with pytest.raises(InputError, match=r"row 0, column 3 is 1e\+39 \(beyond the float32 range\)"):
        load_matrix(save(matrix))


def test_missing_files_and_directories_are_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.npy: No such file"):
        load_matrix(tmp_path / "absent.npy")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        load_matrix(tmp_path)


@pytest.mark.parametrize(
    ("w", "x", "message"),
    [
        ((4, 64), (2, 96), r"W is 4 x 64 and X is 2 x 96: .* they are 64 and 96$"),
        ((4, 64), (64, 2), "X looks transposed"),
        ((64, 4), (2, 64), "W looks transposed"),
        ((4, 50), (2, 50), r"multiple of the block size 32: .*14 zero columns, .*\(0, 14\)"),
        ((4, 288), (2, 288), "above preset tiny's max_k = 256"),
    ],
)
def test_shapes_that_do_not_multiply_are_explained(w, x, message):
    with pytest.raises(InputError, match=message):
        check_shape(w, x, TINY)


def test_the_advice_on_padding_works():
    w, x = generate(3, 50, 2, seed=1)
    padded = [np.pad(a, ((0, 0), (0, 14))) for a in (w, x)]
    check_shape(padded[0].shape, padded[1].shape, TINY)
    assert np.allclose(padded[0] @ padded[1].T, w @ x.T)


def test_generated_matrices_depend_on_the_seed_alone():
    first, again, other = (generate(8, 64, 3, seed) for seed in (1, 1, 2))
    assert [a.shape for a in first] == [(8, 64), (3, 64)]
    assert all(a.dtype == np.float32 for a in first)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert all((a != b).any() for a, b in zip(first, other, strict=True))


def test_shape_texts():
    assert parse_shape("256x2880x16") == (256, 2880, 16)
    for text in ("", "1x2", "1x2x3x4", "1x-2x3", "0x32x1", "axbxc", "1.5x32x1", "²x32x1"):
        with pytest.raises(InputError, match="a shape is NxKxC"):
            parse_shape(text)
