"""IEEE-754 binary32 arithmetic, pipelined: nearest even, subnormals flushed, one NaN.

Every unit takes operands each clock and delivers the result `LATENCY` clocks later; there is no
back-pressure and no reset of data. Subnormal operands count as zeros of their sign; a result
becomes a zero of its sign exactly when its exact magnitude, before rounding, is below 2**-126.
"""

from pequin.fp32.add import FloatAdd
from pequin.fp32.compare import FloatCompare, FloatMax
from pequin.fp32.convert import FloatToInt, IntToFloat
from pequin.fp32.fixed import FixedToFloat, FloatToFixed
from pequin.fp32.mul import FloatMul
from pequin.fp32.special import Function, SpecialFunctions
from pequin.fp32.types import CANONICAL_NAN, Float32

__all__ = [
    "CANONICAL_NAN",
    "FixedToFloat",
    "Float32",
    "FloatAdd",
    "FloatCompare",
    "FloatMax",
    "FloatMul",
    "FloatToFixed",
    "FloatToInt",
    "Function",
    "IntToFloat",
    "SpecialFunctions",
]
