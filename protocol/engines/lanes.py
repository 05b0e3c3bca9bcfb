"""Instructions on vectors of 16 float32 values, for kernels whose loops a compiler doesn't make vectors of by itself.

In: the arguments of an intrinsic function, arrays and indices. Out: what LLVM is to emit, which fits it to the
processor's own vectors. Imported by kernel files alone (`protocol/kernels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from protocol.kernel_arithmetic import WORD

LANES = 16
VECTOR = ir.VectorType(ir.FloatType(), LANES)
loops: Any = cgutils  # it has no types


class Lanes:
    """Emits instructions on vectors of LANES float32 values, which LLVM fits to the processor's own."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context, self._builder, self._signature, self._args = context, builder, signature, args

    def pointer(self, array: int, start: int) -> Any:
        """To an element: argument number `array` at the index that argument number `start` is."""
        made = self._context.make_array(self._signature.args[array])(self._context, self._builder, self._args[array])
        return self._builder.gep(made.data, [self._args[start]])

    def load(self, pointer: Any, offset: Any) -> Any:
        return self._builder.load(self._vector_at(pointer, offset), align=4)

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        self._builder.store(value, self._vector_at(pointer, offset), align=4)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a · b + c, in one rounding where the processor can."""
        return self._builder.fadd(self._builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

    def broadcast(self, pointer: Any, offset: Any) -> Any:
        return self._spread(self._builder.load(self._builder.gep(pointer, [offset])), VECTOR)

    def four_sums(self, vectors: Sequence[Any]) -> Any:
        """The sums of the lanes of four vectors, as a vector of four."""
        halves = list(vectors)
        width = LANES
        while width > 4:
            width //= 2
            halves = [self._sum_of(x, x, list(range(width)), list(range(width, 2 * width))) for x in halves]
        low, high = (self._sum_of(halves[n], halves[n + 1], [0, 1, 4, 5], [2, 3, 6, 7]) for n in (0, 2))
        return self._sum_of(low, high, [0, 2, 4, 6], [1, 3, 5, 7])

    def spread(self, value: Any) -> Any:
        """A vector of one value."""
        return self._spread(value, VECTOR)

    def are_below(self, first: Any, limit: Any) -> Any:
        """Which of the LANES numbers from `first` on are below `limit`."""
        words = ir.VectorType(first.type, LANES)
        left = self._spread(self._builder.sub(limit, first), words)
        return self._builder.icmp_unsigned("<", ir.Constant(words, list(range(LANES))), left)

    def greater(self, a: Any, b: Any) -> Any:
        return self._builder.select(self._builder.fcmp_ordered(">", a, b), a, b)

    def fold(self, vector: Any, pair: Callable[[Any, Any], Any]) -> Any:
        """One value of a vector's lanes: `pair` of two of them, again and again."""
        width = LANES
        while width > 1:
            width //= 2
            vector = self._of_parts(vector, vector, list(range(width)), list(range(width, 2 * width)), pair)
        return self._builder.extract_element(vector, WORD(0))

    def _sum_of(self, a: Any, b: Any, first: list[int], second: list[int]) -> Any:
        return self._of_parts(a, b, first, second, self._builder.fadd)

    def _of_parts(self, a: Any, b: Any, first: list[int], second: list[int], pair: Callable[[Any, Any], Any]) -> Any:
        """`pair` of two choices of the lanes of two vectors."""
        return pair(
            *(
                self._builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(WORD, len(mask)), mask))
                for mask in (first, second)
            )
        )

    def _spread(self, value: Any, vector: Any) -> Any:
        first = self._builder.insert_element(ir.Constant(vector, ir.Undefined), value, WORD(0))
        return self._builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES))

    def _vector_at(self, pointer: Any, offset: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(pointer, [offset]), VECTOR.as_pointer())
