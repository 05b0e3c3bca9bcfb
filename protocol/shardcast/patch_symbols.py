"""The alphabet of a sparse block: a byte a change, `quotient << 3 | kind`. docs/protocol.md says what it means.

Kinds 0 to 5: the word's difference is +1, −1, +2, −2, +3, −3. WIDE: it is among the block's wide ones. SKIP: no change,
but 32 · (number + 1) more for the quotient of the next symbol.
"""

from __future__ import annotations

KIND_BITS, QUOTIENT_BITS = 3, 5
NUM_NARROW, WIDE, SKIP = 6, 6, 7
MAX_CLASSES = 8
MAGNITUDE = 0x7FFF
"""The bits of a two-byte word that classes go by: all but the sign of a float."""
