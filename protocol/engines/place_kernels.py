"""Compiled passes over single values of a weight: whether memory holds them, and writing others there.

    holds_16, holds_32   values of so many bits at `rows[r] + columns[c]` of memory ─▶ whether they are `before`
    put_16, put_32       the same places ─▶ `values`

In: flat positions in a matrix of len(rows) × len(columns), which are inside of it; bits as integers. The only caller
is `protocol/engines/places.py`, which has the same in torch.
"""

from __future__ import annotations

from typing import Any

from protocol.kernels import helper, kernel


@helper
def offset_of(position: Any, rows: Any, columns: Any) -> Any:
    row = position // columns.shape[0]
    return rows[row] + columns[position - row * columns.shape[0]]


@helper
def holds(memory: Any, rows: Any, columns: Any, positions: Any, before: Any) -> Any:
    are_equal = True
    for i in range(positions.shape[0]):
        are_equal &= memory[offset_of(positions[i], rows, columns)] == before[i]
    return are_equal


@helper
def put(memory: Any, rows: Any, columns: Any, positions: Any, values: Any) -> None:
    for i in range(positions.shape[0]):
        memory[offset_of(positions[i], rows, columns)] = values[i]


@kernel("boolean(int16[::1], int64[::1], int64[::1], int64[::1], int16[::1])")
def holds_16(memory: Any, rows: Any, columns: Any, positions: Any, before: Any) -> bool:
    return bool(holds(memory, rows, columns, positions, before))


@kernel("boolean(int32[::1], int64[::1], int64[::1], int64[::1], int32[::1])")
def holds_32(memory: Any, rows: Any, columns: Any, positions: Any, before: Any) -> bool:
    return bool(holds(memory, rows, columns, positions, before))


@kernel("void(int16[::1], int64[::1], int64[::1], int64[::1], int16[::1])")
def put_16(memory: Any, rows: Any, columns: Any, positions: Any, values: Any) -> None:
    put(memory, rows, columns, positions, values)


@kernel("void(int32[::1], int64[::1], int64[::1], int64[::1], int32[::1])")
def put_32(memory: Any, rows: Any, columns: Any, positions: Any, values: Any) -> None:
    put(memory, rows, columns, positions, values)
