"""Registers of a pipeline's data path."""

from typing import Any

from amaranth import Module, ShapeLike, Signal


def register(m: Module, value: Any, *, name: str, shape: ShapeLike | None = None) -> Any:
    """Return `value` one clock later, in a register without reset.

    Only control needs a reset; a data path that is wide simulates and routes better without.

    Parameters
    ----------
    m
        Module that gets the register, in its sync domain.
    value
        Amaranth value or view.
    name
        Name of the register.
    shape
        Shape of the register; that of `value` by default.
    """
    held = Signal(value.shape() if shape is None else shape, name=name, reset_less=True)
    m.d.sync += held.eq(value)
    return held


def delay(m: Module, value: Any, clocks: int, *, name: str, reset_less: bool = True) -> Any:
    """Return `value` delayed by `clocks` registers of the module's sync domain.

    Parameters
    ----------
    m
        Module that gets the registers.
    value
        Amaranth value or view.
    clocks
        Registers; 0 returns `value` itself.
    name
        Signals are called NAME_1 to NAME_n.
    reset_less
        False for control that must be quiet after reset.
    """
    for stage in range(1, clocks + 1):
        held = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        m.d.sync += held.eq(value)
        value = held
    return value
