import pytest

from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.fp32 import (
    FixedToFloat,
    FloatAdd,
    FloatCompare,
    FloatMax,
    FloatMul,
    FloatToFixed,
    FloatToInt,
    Function,
    IntToFloat,
    SpecialFunctions,
)


@pytest.mark.parametrize(
    "unit",
    [
        FloatAdd(),
        FloatMul(),
        FloatMax(),
        FloatCompare(),
        IntToFloat(),
        FloatToInt(),
        FixedToFloat(width=80, lsb_exponent=-32),
        FloatToFixed(width=64, lsb_exponent=-32),
        SpecialFunctions(lanes=2, functions=(Function.EXP2, Function.RECIPROCAL)),
    ],
    ids=lambda unit: type(unit).__name__,
)
def test_converts_to_verilog(unit):
    text = elaborate(unit, "unit").verilog
    assert text.count("module unit") >= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedToFloat(width=25, lsb_exponent=0), "26 to 128 bits, not 25"),
        (lambda: FixedToFloat(width=80, lsb_exponent=60), "leaves fp32's range"),
        (lambda: FloatToFixed(width=129, lsb_exponent=0), "26 to 128 bits, not 129"),
        (lambda: FloatToFixed(width=64, lsb_exponent=1), "-100 to 0, not 1"),
        (lambda: SpecialFunctions(lanes=0), "lanes must be at least 1, not 0"),
        (lambda: SpecialFunctions(functions=()), "at least one of EXP2"),
    ],
)
def test_errors_name_the_rule(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
