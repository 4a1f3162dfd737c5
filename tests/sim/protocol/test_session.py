import pytest

from pequin.errors import InputError
from pequin_sim.protocol import (
    Ack,
    Answered,
    Credit,
    Data,
    Event,
    EventKind,
    HostSession,
    Nak,
    PacketType,
    ProtocolError,
    Read,
    Rule,
    SessionError,
    Sizes,
    Start,
    Stop,
    Unasked,
    Welcome,
    decode,
    encode,
)

SIZES = Sizes(**dict.fromkeys(Sizes.__dataclass_fields__, 1))
READ = Read(memory=1, address=4, beats=2)


def opened(sent=0, **options):
    session = HostSession(**options)
    hello, frame = session.hello()
    assert decode(frame) == hello
    welcome = Welcome(
        id=hello.id, memory_requests=4, requests=16, max_beats=64, sent=sent, sizes=SIZES
    )
    answered = session.receive(encode(welcome))
    assert answered == Answered(hello, welcome)
    return session


def test_ids_are_new_and_skip_what_is_open():
    session = HostSession()
    session._next_id = 0xFFFF
    first, _ = session.request(READ)
    second, _ = session.request(READ)
    assert (first.id, second.id) == (0xFFFF, 0)
    session._next_id = 0xFFFF
    assert session.request(READ)[0].id == 1


def test_limits_of_open_requests():
    session = HostSession()
    for _ in range(4):
        assert session.has_room(READ)
        read, _ = session.request(READ)
    assert not session.has_room(READ)
    for _ in range(16):
        assert session.has_room(Stop())
        session.request(Stop())
    assert not session.has_room(Stop())
    assert session.has_room(Credit(total=1))
    session.receive(encode(Data(id=read.id, memory=1, address=4, data=bytes(64))))
    assert session.has_room(READ)
    assert not session.has_room(Stop())
    assert len(session.pending) == 19


@pytest.mark.parametrize(
    "answer",
    [
        Ack(request=PacketType.READ),
        Data(memory=1, address=4, data=bytes(32)),
        Data(memory=2, address=4, data=bytes(64)),
        Data(memory=1, address=5, data=bytes(64)),
    ],
)
def test_a_wrong_answer_is_refused(answer):
    session = HostSession()
    session.request(READ)
    with pytest.raises(SessionError, match="is no answer to Read"):
        session.receive(encode(answer))
    assert len(session.pending) == 1


def test_an_ack_names_its_request():
    session = HostSession()
    session.request(Start())
    with pytest.raises(SessionError, match="is no answer to Start"):
        session.receive(encode(Ack(request=PacketType.STOP)))
    session.receive(encode(Ack(request=PacketType.START)))
    assert session.pending == ()


def test_answers_to_nothing():
    ack = Ack(id=5, request=PacketType.STOP)
    with pytest.raises(SessionError, match="answers no request"):
        HostSession().receive(encode(ack))
    assert HostSession(strict=False).receive(encode(ack)) == Unasked(ack)
    nak = Nak(id=5, code=Rule.CRC)
    assert HostSession().receive(encode(nak)) == nak


def test_a_refusal_is_an_answer():
    session = HostSession()
    read, _ = session.request(READ)
    nak = Nak(id=read.id, code=Rule.MEMORY, error=15, beat=1)
    assert session.receive(encode(nak)) == Answered(read, nak)
    assert session.pending == ()


def test_a_request_can_be_given_up():
    session = HostSession()
    read, _ = session.request(READ)
    session.forget(read)
    assert session.pending == ()


def test_a_gap_between_events_is_found():
    session = HostSession()
    for number in (0xFFFE, 0xFFFF, 0):
        event = Event(id=number, kind=EventKind.DONE)
        assert session.receive(encode(event)) == event
    with pytest.raises(SessionError, match="event 2 comes where 1 is due"):
        session.receive(encode(Event(id=2, kind=EventKind.DONE)))


def test_a_damaged_packet_still_counts_as_received():
    session = opened()
    before = session.received
    with pytest.raises(ProtocolError, match="crc"):
        session.receive(encode(Event(kind=EventKind.DONE))[:-1] + b"\xff")
    assert session.received == before + 36


def test_credit_is_renewed_when_half_of_the_window_is_used():
    session = opened(sent=0xFFFFFF00, window=8000)
    assert session.received == 0xFFFFFF00 + 60
    for count in range(1, 200):
        session.receive(encode(Event(id=count, kind=EventKind.DONE)))
        frame = session.renewal()
        if frame is not None:
            break
    assert 60 + 36 * count >= 4000 > 60 + 36 * (count - 1)
    assert decode(frame).total == (0xFFFFFF00 + 60 + 36 * count + 8000) & 0xFFFFFFFF
    assert session.renewal() is None


def test_the_tile_is_never_left_without_credit_for_the_longest_packet():
    window = 2100
    session = opened(window=window)
    used = 60
    for count in range(500):
        frame = session.renewal()
        if frame is not None:
            used = 0
        assert window - used >= 2068
        session.receive(encode(Event(id=count, kind=EventKind.DONE)))
        used += 36
        if window - used < 2068:
            assert session.renewal() is not None
            used = 0


def test_no_renewal_without_welcome_or_by_wish():
    assert HostSession().renewal() is None
    session = opened(window=100, automatic=False)
    assert session.renewal() is None


def test_a_window_that_would_hang_is_refused():
    with pytest.raises(InputError, match="above 2068 bytes, the longest packet, not 2068"):
        HostSession(window=2068)
