"""RAM images: what is written is read back, and bad shapes are refused."""

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.images import read_image, write_image


@pytest.mark.parametrize("word_bytes", [1, 2, 4, 5, 32])
def test_reading_returns_what_was_written(tmp_path, word_bytes):
    words = np.random.default_rng(word_bytes).integers(0, 256, (7, word_bytes), dtype=np.uint8)
    write_image(tmp_path / "image", words)
    assert np.array_equal(read_image(tmp_path / "image", word_bytes), words)


def test_words_are_padded_to_four_little_endian_bytes(tmp_path):
    write_image(tmp_path / "image", np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    assert (tmp_path / "image").read_bytes() == bytes([1, 2, 3, 0, 4, 5, 6, 0])


@pytest.mark.parametrize(
    "words",
    [np.zeros(4, np.uint8), np.zeros((2, 4), np.int32), np.zeros((2, 0), np.uint8)],
    ids=["one dimension", "another type", "empty words"],
)
def test_another_array_is_refused(tmp_path, words):
    with pytest.raises(InputError, match=r"a uint8 array \[words, bytes\]"):
        write_image(tmp_path / "image", words)


def test_a_file_of_broken_words_is_refused(tmp_path):
    (tmp_path / "image").write_bytes(bytes(10))
    with pytest.raises(InputError, match="10 bytes, which is no multiple of the 8"):
        read_image(tmp_path / "image", 6)
    with pytest.raises(InputError, match="word_bytes must be at least 1"):
        read_image(tmp_path / "image", 0)
