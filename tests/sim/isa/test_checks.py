"""What the assembler sees to be wrong, and what it leaves to the golden machine."""

import pytest

from pequin.errors import InputError
from pequin_sim.isa import Instruction, Program, assemble, check_program

REFUSED = {
    "a wait for nothing": ("wait 3\nhalt", 1, "can have signalled semaphore 3"),
    "a launch that waits for nothing": ("launch dma, wait 3\nhalt", 1, "semaphore 3"),
    "the second wait of a launch": (
        "signal 1\nlaunch dma, wait 1, wait 2\nhalt",
        2,
        "semaphore 2",
    ),
    "a signal that comes later": ("wait 3\nsignal 3\nhalt", 1, "semaphore 3"),
    "its own signal": ("launch dma, wait 3, signal 3\nhalt", 1, "semaphore 3"),
    "a signal that is jumped over": (
        "beq r0, r0, over\nsignal 3\nover: wait 3\nhalt",
        3,
        "semaphore 3",
    ),
    "a wait in a loop, signalled behind it": (
        "again: wait 3\nsignal 3\nbne r1, r0, again\nhalt",
        1,
        None,
    ),
    "two signallers": (
        "signal 1\nlaunch dma, signal 1\nhalt",
        2,
        "two units signal semaphore 1: dma here, and seq at 0",
    ),
    "two waiters": (
        "signal 1\nsignal 1\nwait 1\nlaunch dma, wait 1\nhalt",
        4,
        "two units wait on semaphore 1: dma here, and seq at 2",
    ),
    "mac without weights": ("launch mac\nhalt", 1, "takes what stream or kv brings"),
    "drain without results": ("launch stream\nlaunch drain\nhalt", 2, "mac or dma brings"),
    "a branch out of the program": ("bne r1, r0, 5\nhalt", 1, "a branch to 5 leaves"),
    "running past the end": ("signal 1", 1, "runs past its end"),
    "running past the end behind a branch": ("halt\nli r1, 1", None, None),
    "a branch that ends the program": ("again: li r1, 1\nbne r1, r0, again", 2, "past its end"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    source, line, message = REFUSED[name]
    if message is None and line is None:
        assemble(source)
        return
    with pytest.raises(InputError) as caught:
        assemble(source, "a.s")
    assert str(caught.value).startswith(f"a.s:{line}: ")
    assert (message or "deadlock") in str(caught.value)
    assemble(source, check=False)


ACCEPTED = {
    "a signal on one of two ways": ("beq r1, r0, other\nsignal 3\nother: wait 3\nhalt"),
    "a signal in an earlier turn": (
        "signal 3\nagain: wait 3\nlaunch dma, signal 4\nwait 4\nsignal 3\nj again"
    ),
    "code that is not reached": "halt\nwait 3\nlaunch mac",
    "a branch that is never taken": "bne r1, r1, 99\nblt r2, r2, 99\nhalt",
    "a branch that is always taken": "again: bge r1, r1, again",
    "a jump back at the end": "again: step\nj again",
    "kv for mac and dma for drain": "launch kv\nlaunch mac\nlaunch dma\nlaunch drain\nhalt",
    "an illegal instruction stops": ".word 0",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted(name):
    assemble(ACCEPTED[name])


def test_every_entry_begins_anew():
    source = "signal 3\nwait 3\nhalt\nsecond: wait 3\nhalt\n"
    assemble(source)
    with pytest.raises(InputError, match="<text>:4: deadlock"):
        assemble(source + ".entry second")
    assert assemble("halt\nsecond: halt\n.entry second").entries == (0, 1)


def test_a_program_without_source_is_located_by_its_address():
    with pytest.raises(InputError, match=r"^pc 1: "):
        check_program(Program.of([Instruction(18, imm=1), Instruction(17, imm=2)]))


def test_a_program_without_instructions():
    with pytest.raises(InputError, match="no instructions"):
        assemble("; nothing")
