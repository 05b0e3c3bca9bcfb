"""Arithmetic that kernels share: sums that use vectors, exponentials without a library's call, bits as other types.

In: scalars. Out: scalars. All of these are compiled into the kernels that call them, where loops over them become
vectors. Imported by kernel files alone (`protocol/kernels.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

F32, U64 = np.float32, np.uint64
WORD = ir.IntType(32)

LEAST_EXPONENT_32, LEAST_EXPONENT_64 = -87.0, -708.0
"""exp of anything lower counts as of these: 1e-38 and 1e-308."""
LOG2E_64, LOG2E_32 = math.log2(math.e), float(F32(math.log2(math.e)))
LN2_HIGH_32, LN2_LOW_32 = 0.693359375, float(F32(-2.12194440e-4))
LN2_HIGH_64, LN2_LOW_64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts, of which k times the first one is exact."""
ROUNDING_32, ROUNDING_64 = 1.5 * 2.0**23, 1.5 * 2.0**52
"""Added to a number, they leave the nearest integer in its last bits."""
EXPONENT_BIAS, EXPONENT_SHIFT = U64(1023), U64(52)
ONE = F32(1)
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11 = (1 / math.factorial(n) for n in range(2, 12))
TAYLOR_32 = [float(F32(1 / math.factorial(n))) for n in range(7)]


def helper_with(*freedoms: str) -> Callable[[F], F]:
    """A helper whose arithmetic may be rearranged as these flags of LLVM say."""

    def compiled(function: F) -> F:
        fast: Any = numba.njit(error_model="numpy", fastmath=set(freedoms))(function)
        return cast(F, fast)

    return compiled


def inlined(function: F) -> F:
    """A helper that becomes a part of its callers always: a call counts references to each array."""
    fast: Any = numba.njit(error_model="numpy", fastmath={"contract"}, forceinline=True)(function)
    return cast(F, fast)


summing = helper_with("contract", "reassoc", "nsz")
"""Sums in any order, so that they use vectors."""
fused = helper_with("contract")
"""a · b + c in one rounding where the processor can."""


def cast_bits(source: types.Type, target: types.Type) -> Callable[[Any], Any]:
    """A function that takes the same bits as another type."""

    def typed(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    made: Any = intrinsic(typed)
    return cast(Callable[[Any], Any], made)


def instructions(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of so many float32 values, one or two, to one, given by the instructions that LLVM is to emit."""

    def emitting(emit: Callable[..., Any]) -> Callable[..., Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, *args)

        signature = types.float32(*[types.float32] * count)

        def one(typing_context: Any, x: Any) -> Any:
            return signature, generate

        def two(typing_context: Any, x: Any, y: Any) -> Any:
            return signature, generate

        made: Any = intrinsic(one if count == 1 else two)
        return cast(Callable[..., Any], made)

    return emitting


bits_64 = cast_bits(types.float64, types.uint64)
float_64 = cast_bits(types.uint64, types.float64)
bits_32 = cast_bits(types.float32, types.int32)
float_32 = cast_bits(types.int32, types.float32)


@instructions(1)
def as_bf16(builder: Any, value: Any) -> Any:
    """The nearest bfloat16, ties to even."""
    bits = builder.bitcast(value, WORD)
    odd = builder.and_(builder.lshr(bits, WORD(16)), WORD(1))
    bits = builder.add(bits, builder.add(odd, WORD(0x7FFF)))
    return builder.bitcast(builder.and_(bits, WORD(0xFFFF0000)), ir.FloatType())


def emit_exp(builder: Any, x: Any) -> Any:
    """exp of a float32 <= 88, or of a vector of them, to 3e-7: 2^k · P(r) with |r| <= ln 2 / 2."""
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 0
    words = ir.VectorType(WORD, lanes) if lanes else WORD

    def constant(value: float) -> Any:
        return ir.Constant(x.type, [value] * lanes if lanes else value)

    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

    least = constant(LEAST_EXPONENT_32)
    x = builder.select(builder.fcmp_ordered(">", x, least), x, least)
    shifted = multiply_add(x, constant(LOG2E_32), constant(ROUNDING_32))
    k = builder.fsub(shifted, constant(ROUNDING_32))
    r = multiply_add(k, constant(-LN2_HIGH_32), x)
    r = multiply_add(k, constant(-LN2_LOW_32), r)
    power = constant(TAYLOR_32[-1])
    for coefficient in reversed(TAYLOR_32[:-1]):
        power = multiply_add(power, r, constant(coefficient))
    # In words of 32 bits: `shifted` has k in its last ones, which become the exponent's.
    shift = ir.Constant(words, [23] * lanes if lanes else 23)
    raised = builder.shl(builder.bitcast(shifted, words), shift)
    return builder.bitcast(builder.add(builder.bitcast(power, words), raised), x.type)


exp_32 = instructions(1)(emit_exp)


@fused
def exp_64(x: float) -> float:
    """exp of a float64 <= 709 to 1e-14, by 2^k · P(r) with a Taylor polynomial of degree 11 on |r| <= ln 2 / 2."""
    x = x if x > LEAST_EXPONENT_64 else LEAST_EXPONENT_64
    shifted = x * LOG2E_64 + ROUNDING_64
    k = shifted - ROUNDING_64
    r = x - k * LN2_HIGH_64
    r = r - k * LN2_LOW_64
    p = C11 * r + C10
    p = p * r + C9
    p = p * r + C8
    p = p * r + C7
    p = p * r + C6
    p = p * r + C5
    p = p * r + C4
    p = p * r + C3
    p = p * r + C2
    p = p * r + 1.0
    p = p * r + 1.0
    power: float = float_64((bits_64(shifted) + EXPONENT_BIAS) << EXPONENT_SHIFT)
    return p * power
