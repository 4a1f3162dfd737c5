import pytest
from hypothesis import strategies as st

from pequin_sim import protocol as p
from pequin_sim.protocol.packets import REQUEST_TYPES

U8, U16, U32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
U64 = st.integers(0, (1 << 64) - 1)
MEMORY = st.sampled_from(list(p.MemoryId)).map(int)
BEATS = st.integers(1, 64)
COLUMN = st.builds(p.Column, slot=U32, token=U32, position=U32, start=U32, flags=U32, kv_base=U32)


@st.composite
def beats(draw):
    seed = draw(st.integers(0, 255))
    return bytes((seed + 7 * i) & 0xFF for i in range(32 * draw(BEATS)))


def build(kind, /, **fields):
    return st.builds(kind, id=U16, **fields)


SIZES = st.builds(
    p.Sizes,
    **{
        name: U32 if not name.startswith("rate") else st.integers(1, 0xFFFF)
        for name in p.Sizes.__dataclass_fields__
    },
)
PACKETS = st.one_of(
    build(p.Hello, credit=U32),
    build(p.Write, memory=MEMORY, address=U32, data=beats()),
    build(p.Read, memory=MEMORY, address=U32, beats=BEATS),
    build(p.Start, pc=U16),
    build(p.Stop),
    build(p.Clear),
    build(p.Step, columns=st.lists(COLUMN, min_size=1, max_size=20).map(tuple)),
    build(p.Credit, total=U32),
    build(p.Welcome, memory_requests=U8, requests=U8, max_beats=U16, sent=U32, sizes=SIZES),
    build(p.Ack, request=st.sampled_from(sorted(REQUEST_TYPES)).map(int)),
    build(p.Data, memory=MEMORY, address=U32, data=beats()),
    build(p.Nak, code=st.sampled_from(list(p.Rule)), error=U8, beat=U16, detail=U32),
    build(
        p.Event,
        kind=st.sampled_from(list(p.EventKind)),
        unit=U8,
        code=U16,
        pc=U32,
        value=U32,
        detail=U32,
        stamp=U64,
    ),
)


@pytest.fixture(scope="session")
def packets():
    """Return the strategy of all packets."""
    return PACKETS
