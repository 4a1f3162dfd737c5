"""Listings: addresses and words beside the source."""

from __future__ import annotations

from pequin_sim.isa.disassembler import instruction_text, label_names
from pequin_sim.isa.instructions import Program


def listing(program: Program) -> str:
    """Return a table of address, word, and source line or, without one, disassembly."""
    labels = label_names(program)
    lines = []
    for pc, word in enumerate(program.words):
        source = program.lines[pc] if pc < len(program.lines) else None
        if source is None:
            lines += [f"{'':24}{name}:" for name in sorted(labels.get(pc, ()))]
            text = f"    {instruction_text(int(word), labels)}"
        else:
            text = f"{source.number:5} | {source.text}"
        lines.append(f"{pc:5} {int(word):016x}  {text}")
    return "\n".join(lines) + "\n" if lines else ""
