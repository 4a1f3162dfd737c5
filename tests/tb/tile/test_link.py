"""The whole tile behind its link: a host decodes, and everything is the golden machine's."""

import numpy as np
import pytest

from pequin_sim.bench.link import run_bare_link
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.hbm.codes import check_bytes
from pequin_sim.machine import Column, EventKind, Machine, Step
from pequin_sim.model import ModelShape, random_model
from pequin_sim.protocol import Event, decode
from pequin_sim.rtl.bench import Pauses
from pequin_sim.rtl.link import run_link
from pequin_sim.rtl.tile_link import decode_script, program_beats, tile_link_bench

SHAPE = ModelShape(layers=2, hidden=72, heads=4, kv_heads=2, head_dim=20, mlp=100, vocab=50)
POSITIONS, FIRST = 3, 3


@pytest.fixture(scope="module")
def decoder(tiny):
    """Return program, HBM image, STEPs, and each step's result on the golden machine."""
    compiled = compile_decoder(SHAPE, tiny, Options(max_positions=32))
    image = compiled.image(random_model(SHAPE, seed=1))
    machine = Machine(tiny, image, compiled.program)
    machine.run()
    token, steps, results = FIRST, [], []
    for position in range(POSITIONS):
        steps.append(Step([Column(token=token, position=position, flags=1)]))
        results.append(machine.step(steps[-1]))
        token = results[-1].tokens[0].value
    return compiled.program.words, image, steps, results


def images(image):
    return {"hbm": image, "hbm.ecc": check_bytes(image)}


@pytest.mark.parametrize("paused", [False, True])
def test_a_host_decodes_through_packets(tiny, decoder, paused):
    program, image, _, results = decoder
    rest = Pauses(rate=64, burst_rate=100, burst_clocks=200, seed=7)
    reads = {
        "VECTOR": (0, tiny.config.vector_elements // 8),
        "KV": (0, tiny.config.kv_beats),
        "SCALARS": (0, tiny.config.scalars // 8),
    }
    run = run_link(
        tile_link_bench(tiny),
        test_module="pequin_tb.tile.decode",
        images=images(image),
        pauses={"rx": rest, "tx": rest} if paused else None,
        job={
            "program": program_beats(program).tobytes().hex(),
            "token": FIRST,
            "positions": POSITIONS,
            "reads": reads,
            "hbm_pauses": rest.packed() if paused else 0,
        },
    )
    result = run.simulation.result
    golden = [event for step in results for event in step.events]
    assert result["tokens"] == [e.value for e in golden if e.kind is EventKind.TOKEN]
    wanted = [(int(e.kind), e.code, e.pc, e.value, e.detail) for e in golden]
    assert [(k, c, p, v, d) for k, _, c, p, v, d, _ in result["events"]] == wanted
    memories = {n: np.frombuffer(bytes.fromhex(h), np.uint8) for n, h in result["memories"].items()}
    assert memories["VECTOR"].view("<u4").tolist() == results[-1].vector.tolist()
    assert memories["KV"].tolist() == results[-1].kv.reshape(-1).tolist()
    assert memories["SCALARS"].view("<u4").tolist() == results[-1].scalars.tolist()
    assert result["sizes"]["kv_beats"] == tiny.config.kv_beats


def test_bare_cpp_plays_the_same_packets(tiny, decoder):
    """The packets of a whole conversation, without Python in the simulation."""
    program, image, steps, results = decoder
    counts = [len(result.events) for result in results]
    script = decode_script(program, steps, counts)
    design = tile_link_bench(tiny)
    bare = run_bare_link(design, script, images=images(image))
    ours = run_link(design, script=script, images=images(image))
    events = [
        [e for e in (decode(record.frame) for record in run.records) if isinstance(e, Event)]
        for run in (bare, ours)
    ]
    assert events[0] == events[1]
    golden = [event for result in results for event in result.events]
    assert [(e.code, e.value, e.detail) for e in events[0]] == [
        (e.code, e.value, e.detail) for e in golden
    ]
