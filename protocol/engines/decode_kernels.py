"""The compiled parts of a decoding step that aren't matrix products: norms, attention over paged rows, SwiGLU.

    normed    x ─▶ x / rms(x) · weight
    attend    queries, keys, values of one new token a row ─▶ rotated, the keys and values into the row's blocks,
              softmax(q · K) · V over all of the row's tokens, and of no others: no padding, no mask
    swiglu    gate | up ─▶ silu(gate) · up

Rows may differ in length as they like. In: float32 arrays in C order; in a bfloat16 engine they hold bfloat16 values,
and `is_bf16` rounds where its forward pass does. Out: float32 arrays, filled in. `protocol/engines/parts.py` calls
them, and has the same in plain torch; `step_kernel.py` makes one kernel of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from protocol.engines.lanes import LANES, VECTOR, Lanes, loops
from protocol.kernel_arithmetic import F32, ONE, U64, as_bf16, emit_exp, exp_32, fused, inlined, summing
from protocol.kernels import helper, kernel

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.uint64]
Index = int | np.uint64

U0, U1, U2, U3, U4 = (U64(n) for n in range(5))
U_LANES = U64(LANES)
ZERO = F32(0)


@summing
def sum_of_squares(row: Floats) -> Any:
    total = ZERO
    for i in range(row.shape[0]):
        total += row[i] * row[i]
    return total


@helper
def scale_row(row: Floats, weight: Floats, scale: Any, is_bf16: bool, out: Floats) -> None:
    if is_bf16:
        for i in range(row.shape[0]):
            out[i] = weight[i] * as_bf16(row[i] * scale)
    else:
        for i in range(row.shape[0]):
            out[i] = weight[i] * (row[i] * scale)


@helper
def norm_rows(x: Floats, weight: Floats, eps: Any, is_bf16: bool, out: Floats) -> None:
    for b in range(x.shape[0]):
        mean_square = sum_of_squares(x[b]) / F32(x.shape[1])
        scale_row(x[b], weight, ONE / F32(math.sqrt(mean_square + eps)), is_bf16, out[b])


@kernel("void(float32[:,::1], float32[::1], float32, boolean, float32[:,::1])")
def normed(x: Floats, weight: Floats, eps: Any, is_bf16: bool, out: Floats) -> None:
    """x [B, H] / rms(x) · weight [H] into `out` [B, H]."""
    norm_rows(x, weight, eps, is_bf16, out)


@fused
def swiglu_row(gate: Floats, up: Floats, is_bf16: bool, out: Floats) -> None:
    for i in range(out.shape[0]):
        # The smaller exponential of the two that a sigmoid can be made of: it doesn't overflow.
        small = exp_32(-abs(gate[i]))
        silu = gate[i] * (ONE if gate[i] >= ZERO else small) / (ONE + small)
        out[i] = silu * up[i]
    if is_bf16:
        for i in range(out.shape[0]):
            small = exp_32(-abs(gate[i]))
            out[i] = as_bf16(gate[i] * (ONE if gate[i] >= ZERO else small) / (ONE + small)) * up[i]


@helper
def swiglu_rows(both: Floats, is_bf16: bool, out: Floats) -> None:
    width = out.shape[1]
    for b in range(both.shape[0]):
        swiglu_row(both[b, :width], both[b, width:], is_bf16, out[b])


@kernel("void(float32[:,::1], boolean, float32[:,::1])")
def swiglu(both: Floats, is_bf16: bool, out: Floats) -> None:
    """silu(gate) · up into `out` [B, I]; `both` [B, 2 I] has the gates first."""
    swiglu_rows(both, is_bf16, out)


@intrinsic
def _rotate_lanes(typing_context: Any, x: Any, i: Any, cosines: Any, c: Any, sines: Any, s: Any, half: Any) -> Any:
    """`rotate` where `half` is a multiple of LANES, without the rounding."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, half = Lanes(context, builder, signature, args), args[6]
        head, cosine, sine = lanes.pointer(0, 1), lanes.pointer(2, 3), lanes.pointer(4, 5)
        with loops.for_range_slice(builder, half.type(0), half, half.type(LANES), half.type) as (at, _):
            other = builder.add(at, half)
            a, b, cos, sin = (lanes.load(*place) for place in ((head, at), (head, other), (cosine, at), (sine, at)))
            lanes.store(lanes.multiply_add(builder.fneg(b), sin, builder.fmul(a, cos)), head, at)
            lanes.store(lanes.multiply_add(a, sin, builder.fmul(b, cos)), head, other)
        return context.get_dummy_value()

    return types.void(x, i, cosines, c, sines, s, half), generate


@intrinsic
def _copy_lanes(typing_context: Any, source: Any, i: Any, target: Any, j: Any, count: Any) -> Any:
    """`count` is a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, count = Lanes(context, builder, signature, args), args[4]
        here, there = lanes.pointer(0, 1), lanes.pointer(2, 3)
        with loops.for_range_slice(builder, count.type(0), count, count.type(LANES), count.type) as (at, _):
            lanes.store(lanes.load(here, at), there, at)
        return context.get_dummy_value()

    return types.void(source, i, target, j, count), generate


@intrinsic
def _softmax(typing_context: Any, x: Any, start: Any, count: Any, scale: Any) -> Any:
    """exp(scale · x) over their sum, in place; what there is more up to whole LANES becomes 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, count = Lanes(context, builder, signature, args), args[2]
        values, size = lanes.pointer(0, 1), count.type
        least, zeros = (ir.Constant(VECTOR, [value] * LANES) for value in (-math.inf, 0.0))
        largest, total = (loops.alloca_once_value(builder, value) for value in (least, zeros))

        def each() -> Any:
            return loops.for_range_slice(builder, size(0), count, size(LANES), size)

        with each() as (at, _):
            value = builder.select(lanes.are_below(at, count), lanes.load(values, at), least)
            builder.store(lanes.greater(value, builder.load(largest)), largest)
        top = lanes.spread(lanes.fold(builder.load(largest), lanes.greater))
        factor = lanes.spread(args[3])
        with each() as (at, _):
            weight = emit_exp(builder, builder.fmul(factor, builder.fsub(lanes.load(values, at), top)))
            weight = builder.select(lanes.are_below(at, count), weight, zeros)
            lanes.store(weight, values, at)
            builder.store(builder.fadd(weight, builder.load(total)), total)
        whole = lanes.fold(builder.load(total), builder.fadd)
        share = lanes.spread(builder.fdiv(ir.Constant(whole.type, 1.0), whole))
        with each() as (at, _):
            lanes.store(builder.fmul(share, lanes.load(values, at)), values, at)
        return context.get_dummy_value()

    return types.void(x, start, count, scale), generate


rotate_lanes, copy_lanes = cast(Callable[..., None], _rotate_lanes), cast(Callable[..., None], _copy_lanes)
softmax = cast(Callable[..., None], _softmax)


@inlined
def rotate(x: Floats, start: Index, cosines: Floats, sines: Floats, angle: Index, half: Index, is_bf16: bool) -> None:
    """The pairs (i, i + D / 2) of the head at `start` by the angles at `angle`, in place."""
    if half % U_LANES == U0:
        rotate_lanes(x, start, cosines, angle, sines, angle, half)
    else:
        for i in range(half):
            a, b = x[start + i], x[start + half + i]
            x[start + i] = a * cosines[angle + i] - b * sines[angle + i]
            x[start + half + i] = b * cosines[angle + i] + a * sines[angle + i]
    if is_bf16:
        for i in range(half + half):
            x[start + i] = as_bf16(x[start + i])


@inlined
def copy(source: Floats, start: Index, target: Floats, place: Index, count: Index) -> None:
    if count % U_LANES == U0:
        copy_lanes(source, start, target, place, count)
    else:
        for i in range(count):
            target[place + i] = source[start + i]


@intrinsic
def _score_four(typing_context: Any, query: Any, q: Any, keys: Any, k: Any, size: Any, scores: Any, s: Any) -> Any:
    """q · K of four consecutive tokens into `scores`; `size` is a multiple of LANES."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, length = Lanes(context, builder, signature, args), args[4]
        one, four = lanes.pointer(0, 1), lanes.pointer(2, 3)
        sums = [loops.alloca_once_value(builder, ir.Constant(VECTOR, [0.0] * LANES)) for _ in range(4)]
        with loops.for_range_slice(builder, length.type(0), length, length.type(LANES), length.type) as (at, _):
            x = lanes.load(one, at)
            for n, total in enumerate(sums):
                place = builder.add(at, builder.mul(length, length.type(n)))
                builder.store(lanes.multiply_add(x, lanes.load(four, place), builder.load(total)), total)
        found = lanes.four_sums([builder.load(total) for total in sums])
        target = builder.bitcast(lanes.pointer(5, 6), ir.VectorType(ir.FloatType(), 4).as_pointer())
        builder.store(found, target, align=4)
        return context.get_dummy_value()

    return types.void(query, q, keys, k, size, scores, s), generate


@intrinsic
def _mix(
    typing_context: Any, out: Any, o: Any, weights: Any, w: Any, values: Any, v: Any, count: Any, size: Any
) -> Any:
    """Σ weight · value of `count` consecutive tokens, added to `out`.

    `count` is a multiple of 4, `size` one of 2 · LANES: eight sums at a time, so that none waits for the one before.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, count, size = Lanes(context, builder, signature, args), args[6], args[7]
        target, factors, source = lanes.pointer(0, 1), lanes.pointer(2, 3), lanes.pointer(4, 5)
        zero, four, two = (size.type(n) for n in (0, 4, 2 * LANES))
        with loops.for_range_slice(builder, zero, size, two, size.type) as (at, _):
            places = [at, builder.add(at, size.type(LANES))]
            zeros = ir.Constant(VECTOR, [0.0] * LANES)
            sums = [[loops.alloca_once_value(builder, zeros) for _ in places] for _ in range(4)]
            for place, total in zip(places, sums[0], strict=True):
                builder.store(lanes.load(target, place), total)
            for total in (total for turn in sums[1:] for total in turn):
                builder.store(zeros, total)
            with loops.for_range_slice(builder, zero, count, four, size.type) as (first, _):
                for n, turn in enumerate(sums):
                    token = builder.add(first, size.type(n))
                    factor, row = lanes.broadcast(factors, token), builder.mul(token, size)
                    for place, total in zip(places, turn, strict=True):
                        value = lanes.load(source, builder.add(row, place))
                        builder.store(lanes.multiply_add(factor, value, builder.load(total)), total)
            for number, place in enumerate(places):
                a, b, c, d = (builder.load(turn[number]) for turn in sums)
                lanes.store(builder.fadd(builder.fadd(a, b), builder.fadd(c, d)), target, place)
        return context.get_dummy_value()

    return types.void(out, o, weights, w, values, v, count, size), generate


score_four, mix = cast(Callable[..., None], _score_four), cast(Callable[..., None], _mix)


@summing
def dot(a: Floats, i: Index, b: Floats, j: Index, size: Index) -> Any:
    total = ZERO
    for d in range(size):
        total += a[i + d] * b[j + d]
    return total


@fused
def add_one(out: Floats, i: Index, weight: Any, values: Floats, j: Index, size: Index) -> None:
    for d in range(size):
        out[i + d] += weight * values[j + d]


@inlined
def score_block(
    query: Floats, q: Index, keys: Floats, k: Index, count: Index, size: Index, scores: Floats, s: Index
) -> None:
    """q · K of the `count` tokens of a block."""
    whole = count - count % U4 if size % U_LANES == U0 else U0
    for t in range(U0, whole, U4):
        score_four(query, q, keys, k + t * size, size, scores, s + t)
    for t in range(whole, count):
        scores[s + t] = dot(query, q, keys, k + t * size, size)


@inlined
def mix_block(
    out: Floats, o: Index, weights: Floats, w: Index, values: Floats, v: Index, count: Index, size: Index
) -> None:
    """Σ weight · value of the `count` tokens of a block, added to `out`; further tokens weigh 0."""
    if size % (U2 * U_LANES) == U0:
        mix(out, o, weights, w, values, v, (count + U4 - U1) // U4 * U4, size)
    else:
        for t in range(count):
            add_one(out, o, weights[w + t], values, v + t * size, size)


@helper
def attend_rows(
    heads: Floats, keys: Floats, values: Floats, layer: Index, tables: Indices, slots: Indices, positions: Indices,
    cosines: Floats, sines: Floats, shape: Any, is_bf16: bool, scores: Floats, out: Floats,
) -> None:  # fmt: skip
    """As `attend`; `layer` is where the layer's part of `keys` and `values` begins."""
    num_queries, num_kv, size, block_size = shape
    group, num_heads = num_queries // num_kv, num_queries + num_kv + num_kv
    half, scale = size // U2, ONE / F32(math.sqrt(size))
    for b in range(positions.shape[0]):
        position, slot = positions[b], slots[b]
        count, row = position + U1, np.uint64(b) * num_heads * size
        room = (count + U_LANES - U1) // U_LANES * U_LANES
        for h in range(num_queries + num_kv):
            rotate(heads, row + h * size, cosines, sines, position * half, half, is_bf16)
        block, place = tables[slot, position // block_size], position % block_size
        for h in range(num_kv):
            new = row + (num_queries + h) * size
            target = layer + ((block * num_kv + h) * block_size + place) * size
            copy(heads, new, keys, target, size)
            copy(heads, new + num_kv * size, values, target, size)
            first = h * group
            for start in range(U0, count, block_size):
                inside = min(block_size, count - start)
                k = layer + (tables[slot, start // block_size] * num_kv + h) * block_size * size
                for g in range(group):
                    score_block(heads, row + (first + g) * size, keys, k, inside, size, scores, g * room + start)
            o = (np.uint64(b) * num_queries + first) * size
            for i in range(group * size):
                out[o + i] = ZERO
            for g in range(group):
                softmax(scores, g * room, count, scale)
            for start in range(U0, count, block_size):
                inside = min(block_size, count - start)
                v = layer + (tables[slot, start // block_size] * num_kv + h) * block_size * size
                for g in range(group):
                    mix_block(out, o + g * size, scores, g * room + start, values, v, inside, size)


@kernel(
    "void(float32[::1], float32[::1], float32[::1], uint64[:,::1], uint64[::1], uint64[::1],"
    " float32[::1], float32[::1], Tuple((uint64, uint64, uint64, uint64)), boolean, float32[::1], float32[::1])"
)
def attend(
    heads: Floats, keys: Floats, values: Floats, tables: Indices, slots: Indices, positions: Indices,
    cosines: Floats, sines: Floats, shape: Any, is_bf16: bool, scores: Floats, out: Floats,
) -> None:  # fmt: skip
    """One layer's attention for one new token a row. Arrays are flat: views of them would be counted references.

    `heads` [B, Q + 2 K, D]: queries, keys, values, before rotation. `keys`, `values` [blocks, K, block size, D]: the
    layer's cache. Row b is `slots[b]` of `tables` [slots, blocks a row] and has `positions[b]` earlier tokens.
    `cosines`, `sines` [positions, D / 2]. `shape` is (Q, K, D, block size); `scores` has room for Q / K times the
    longest row's tokens, up to whole LANES. `out` [B, Q, D] is filled in.
    """
    attend_rows(heads, keys, values, U0, tables, slots, positions, cosines, sines, shape, is_bf16, scores, out)
