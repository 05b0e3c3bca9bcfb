"""A decoding step of a small model, embeddings to hidden states, as one kernel: no calls between its many small parts.

    tokens ─▶ x ─▶ [ norm ─▶ q k v ─▶ attend ─▶ x + … ─▶ norm ─▶ gate up ─▶ swiglu ─▶ x + … ] a layer ─▶ norm ─▶ out

In: float32 weights in the order in which they are read. Out: hidden states, filled in. Products go a tile at a time:
TILE_ROWS rows by a panel of PANEL columns, whose sums stay in registers until they are whole.
`protocol/engines/whole_step.py` is the only caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from protocol.engines.decode_kernels import (
    U0,
    U1,
    U2,
    Floats,
    Index,
    Indices,
    attend_rows,
    norm_rows,
    swiglu_rows,
)
from protocol.engines.lanes import LANES, VECTOR, Lanes, loops
from protocol.kernel_arithmetic import F32, U64
from protocol.kernels import helper, kernel

WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
"""Whether there are 32 registers of 16 lanes, rather than 16 of 8."""
PANEL_VECTORS = 4 if WIDE else 1
PANEL = PANEL_VECTORS * LANES
TILE_ROWS = 6
U_PANEL, U_TILE = U64(PANEL), U64(TILE_ROWS)
"""As unsigned numbers, which indices are: a signed one would make a float of the two."""


def _tile(num_rows: int) -> Callable[..., None]:
    """A function that adds the product of so many rows of x and a panel to as many of `out`.

    Arrays are flat. x has rows of `length` from `i` on, `out` rows of `width` from `o`; the panel, [length, PANEL],
    begins at `panels[p]`.
    """

    @intrinsic
    def adding(
        typing_context: Any, x: Any, i: Any, length: Any, panels: Any, p: Any, out: Any, o: Any, width: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            lanes, length, width = Lanes(context, builder, signature, args), args[2], args[7]
            rows, panel, target = lanes.pointer(0, 1), lanes.pointer(3, 4), lanes.pointer(5, 6)
            size = length.type
            zeros = ir.Constant(VECTOR, [0.0] * LANES)
            sums = [[loops.alloca_once_value(builder, zeros) for _ in range(PANEL_VECTORS)] for _ in range(num_rows)]
            with loops.for_range_slice(builder, size(0), length, size(1), size) as (at, _):
                first = builder.mul(at, size(PANEL))
                weights = [lanes.load(panel, builder.add(first, size(n * LANES))) for n in range(PANEL_VECTORS)]
                for number, row in enumerate(sums):
                    factor = lanes.broadcast(rows, builder.add(at, builder.mul(length, size(number))))
                    for weight, total in zip(weights, row, strict=True):
                        builder.store(lanes.multiply_add(factor, weight, builder.load(total)), total)
            for number, row in enumerate(sums):
                for n, total in enumerate(row):
                    place = builder.add(builder.mul(width, size(number)), size(n * LANES))
                    lanes.store(builder.fadd(lanes.load(target, place), builder.load(total)), target, place)
            return context.get_dummy_value()

        return types.void(x, i, length, panels, p, out, o, width), generate

    return cast(Callable[..., None], adding)


add_1, add_2, add_3, add_4, add_5, add_6 = (_tile(count) for count in range(1, TILE_ROWS + 1))


@helper
def add_tile(
    x: Floats, i: Index, length: Index, panels: Floats, p: Index, out: Floats, o: Index, width: Index, count: Index
) -> None:
    """The product of `count` rows, TILE_ROWS at most."""
    if count == 6:
        add_6(x, i, length, panels, p, out, o, width)
    elif count == 5:
        add_5(x, i, length, panels, p, out, o, width)
    elif count == 4:
        add_4(x, i, length, panels, p, out, o, width)
    elif count == 3:
        add_3(x, i, length, panels, p, out, o, width)
    elif count == 2:
        add_2(x, i, length, panels, p, out, o, width)
    else:
        add_1(x, i, length, panels, p, out, o, width)


@helper
def add_product(x: Floats, length: Index, weights: Floats, start: Index, out: Floats, width: Index) -> None:
    """bias + x · W added to `out` [B, width]; x is [B, length], both flat. At `start` is the bias, then W's panels.

    A row's sums are in the same order whichever rows are beside it.
    """
    num_rows = U64(out.shape[0]) // width
    num_tiles = (num_rows + U_TILE - U1) // U_TILE
    least, num_larger = num_rows // num_tiles, num_rows % num_tiles
    for b in range(U0, num_rows):
        for i in range(width):
            out[b * width + i] += weights[start + i]
    for column in range(U0, width, U_PANEL):
        panel, row = start + width + column * length, U0
        for tile in range(U0, num_tiles):
            count = least + (U1 if tile < num_larger else U0)
            add_tile(x, row * length, length, weights, panel, out, row * width + column, width, count)
            row += count


@kernel(
    "boolean(int64[::1], float32[:,::1], float32[::1], float32[::1], float32[::1], uint64[:,::1], uint64[::1],"
    " uint64[::1], float32[::1], float32[::1], Tuple((uint64, uint64, uint64, uint64)), uint64, uint64, float32,"
    " float32[:,::1])"
)
def step(
    tokens: Indices, embeddings: Floats, weights: Floats, keys: Floats, values: Floats, tables: Indices,
    slots: Indices, positions: Indices, cosines: Floats, sines: Floats, shape: Any, between: Index, num_layers: Index,
    eps: Any, out: Floats,
) -> bool:  # fmt: skip
    """Hidden states [B, H] of `tokens` [B] into `out`; False, and nothing, where one is none of `embeddings` [V, H].

    `weights` is flat: of each layer the norm's [H], `qkv` and `output` as a bias and panels, the second norm's,
    `gate_up` and `down`; the last norm's. `keys` and `values` are of all layers. The rest as in `attend`.
    """
    num_queries, num_kv, size, _ = shape
    num_rows, width = tokens.shape[0], embeddings.shape[1]
    for b in range(num_rows):
        if not 0 <= tokens[b] < embeddings.shape[0]:
            return False
    hidden, queries, heads = U64(width), num_queries * size, (num_queries + U2 * num_kv) * size
    x, normed = np.empty((num_rows, width), dtype=F32), np.empty((num_rows, width), dtype=F32)
    qkv, mixed = np.empty(num_rows * heads, dtype=F32), np.empty(num_rows * queries, dtype=F32)
    both, inner = np.empty((num_rows, U2 * between), dtype=F32), np.empty((num_rows, between), dtype=F32)
    scores = np.empty((num_queries // num_kv) * (positions.max() + U64(LANES)), dtype=F32)
    for b in range(num_rows):
        x[b] = embeddings[tokens[b]]
    at, cached, layer_size = U0, U0, U64(keys.shape[0]) // num_layers
    for _ in range(num_layers):
        norm_rows(x, weights[at : at + hidden], eps, False, normed)
        at += hidden
        qkv[:] = 0
        add_product(normed.reshape(-1), hidden, weights, at, qkv, heads)
        at += heads * (hidden + U1)
        attend_rows(qkv, keys, values, cached, tables, slots, positions, cosines, sines, shape, False, scores, mixed)
        cached += layer_size
        add_product(mixed, queries, weights, at, x.reshape(-1), hidden)
        at += hidden * (queries + U1)
        norm_rows(x, weights[at : at + hidden], eps, False, normed)
        at += hidden
        both[:] = 0
        add_product(normed.reshape(-1), hidden, weights, at, both.reshape(-1), U2 * between)
        at += U2 * between * (hidden + U1)
        swiglu_rows(both, False, inner)
        add_product(inner.reshape(-1), between, weights, at, x.reshape(-1), hidden)
        at += hidden * (between + U1)
    norm_rows(x, weights[at : at + hidden], eps, False, out)
    return True
