"""Programs whose clocks are the stated throughput of the vector unit."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from pequin_sim.golden.vector import VectorCommand
from pequin_tb.vector.bench import Program, Run, params, run

HIDDEN = 2880
SCORES = 1024
LONG = 2048

_ONE_OVER_HIDDEN = int(np.float32(1 / HIDDEN).view(np.uint32))
_EPSILON = int(np.float32(1e-5).view(np.uint32))


@dataclass(frozen=True)
class Measurement:
    """Clocks of one operation.

    Parameters
    ----------
    name
        What was measured.
    clocks
        From the first row's issue to the last command's end, less what a command on one element
        takes from issue to end.
    rows
        Rows of `lanes` elements that one pass has.
    total
        The same with that latency.
    """

    name: str
    clocks: int
    rows: int
    total: int


def _program(preset: str) -> Program:
    p = params(preset)
    rng = np.random.default_rng(7)
    memory = rng.standard_normal(p.config.vector_elements).astype(np.float32)
    program = Program(preset, memory)
    program.add(VectorCommand(op="set_scalar", out=0, immediate=_ONE_OVER_HIDDEN))
    program.add(VectorCommand(op="set_scalar", out=1, immediate=_EPSILON))
    program.wait()
    return program


def _elementwise(length: int) -> dict[str, list[VectorCommand]]:
    base = VectorCommand(length=length, a=0, b=4096, dst=8192, store=True)
    return {
        "copy": [base],
        "add": [base.replace(op="add")],
        "mul": [base.replace(op="mul")],
        "scale": [base.replace(s1=0)],
        "exp2": [base.replace(function="exp2")],
        "reciprocal": [base.replace(function="reciprocal")],
        "rotary": [base.replace(op="rotary")],
        "rotary_half": [base.replace(op="rotary_half", length=length)],
        "quantize": [base.replace(store=False, quantize="activations")],
        "residual, sum of squares, quantize": [
            base.replace(op="add", factor="square", reduce="sum", out=4, quantize="activations")
        ],
        "sum": [base.replace(store=False, reduce="sum", out=4)],
        "max": [base.replace(store=False, reduce="max", out=4)],
    }


def rms_norm() -> list[VectorCommand]:
    """Return the commands of an rms-norm of `HIDDEN` elements, written to memory."""
    return [
        VectorCommand(
            length=HIDDEN,
            a=0,
            factor="square",
            reduce="sum",
            out=4,
            multiplier=0,
            addend=1,
            finish="rsqrt",
        ),
        VectorCommand(length=HIDDEN, a=0, s1=4, dst=8192, store=True),
    ]


def softmax() -> list[VectorCommand]:
    """Return a softmax of `SCORES` scores: max; exp2, sum, times V's scales, quantize."""
    return [
        VectorCommand(length=SCORES, a=0, reduce="max", out=4),
        VectorCommand(
            length=SCORES,
            a=0,
            s2=4,
            minus_s2=True,
            function="exp2",
            factor="b",
            b=4096,
            reduce="sum",
            out=5,
            finish="reciprocal",
            quantize="activations",
        ),
    ]


def swiglu(length: int) -> list[VectorCommand]:
    """Return SwiGLU of gates at 0 and values at 4096: three passes, quantized at the end."""
    return [
        VectorCommand(length=length, a=0, s1=2, function="exp2", dst=8192, store=True),
        VectorCommand(
            length=length,
            a=8192,
            s2=3,
            function="reciprocal",
            factor="b",
            b=0,
            dst=12288,
            store=True,
        ),
        VectorCommand(op="mul", length=length, a=12288, b=4096, quantize="activations"),
    ]


def measure(preset: str = "ref") -> list[Measurement]:
    """Run every operation in RTL, checked against the golden model; return the clocks."""
    lanes = params(preset).config.lanes
    cases: dict[str, tuple[list[VectorCommand], int]] = {
        name: (commands, LONG) for name, commands in _elementwise(LONG).items()
    }
    cases["rms-norm of 2,880"] = (rms_norm(), HIDDEN)
    cases["softmax of 1,024"] = (softmax(), SCORES)
    cases["swiglu"] = (swiglu(LONG), LONG)
    results = []
    for name, (commands, length) in cases.items():
        short = [c.replace(length=64 if c.op == "rotary_half" else 2) for c in commands]
        least = _clocks(preset, short)
        total = _clocks(preset, commands)
        results.append(Measurement(name, total - least, length // lanes, total))
    return results


def _clocks(preset: str, commands: list[VectorCommand]) -> int:
    """Return clocks from taking the first command to the last one's end."""
    program = _program(preset)
    for command in commands:
        program.add(command)
    outcome: Run = run(program)
    return outcome.end_clocks[-1] - outcome.issue_clocks[2]


def main() -> None:
    """Print the measurements of a preset named on the command line, `ref` by default."""
    preset = sys.argv[1] if len(sys.argv) > 1 else "ref"
    table = Table(title=f"Vector unit, preset {preset}: clocks measured in RTL")
    for heading in ("operation", "rows", "clocks", "rows per clock", "with latency"):
        table.add_column(heading, justify="left" if heading == "operation" else "right")
    for m in measure(preset):
        rate = f"{m.rows / m.clocks:.3f}"
        table.add_row(m.name, str(m.rows), str(m.clocks), rate, str(m.total))
    Console().print(table)


if __name__ == "__main__":
    main()
