import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequin_sim.protocol import crc32c

# RFC 3720, appendix B.4: checksums as they are sent.
READ_COMMAND = bytes.fromhex(
    "01c0000000000000000000000000000014000000000004000000001400000018"
    "28000000000000000200000000000000"
)
VECTORS = {
    "zeros": (bytes(32), "aa36918a"),
    "ones": (b"\xff" * 32, "43aba862"),
    "up": (bytes(range(32)), "4e79dd46"),
    "down": (bytes(range(31, -1, -1)), "5cdb3f11"),
    "read_command": (READ_COMMAND, "563a96d9"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_rfc_3720(name):
    data, wanted = VECTORS[name]
    assert crc32c(data).to_bytes(4, "little").hex() == wanted


def test_check_value_of_the_catalogue():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_continue(first, second):
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_up_to_three_wrong_bits_are_found(data, draw):
    wrong = bytearray(data)
    bits = draw.draw(st.sets(st.integers(0, 8 * len(data) - 1), min_size=1, max_size=3))
    for bit in bits:
        wrong[bit // 8] ^= 1 << bit % 8
    assert crc32c(bytes(wrong)) != crc32c(data)
