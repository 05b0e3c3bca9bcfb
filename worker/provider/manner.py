"""How a provider's command goes about it: only looking, asking first, or sending at once.

In: flags. Out: `Manner`.
"""

from __future__ import annotations

from dataclasses import dataclass

RESEND_SECONDS = 30.0


@dataclass(frozen=True)
class Manner:
    """`provider`: whose account is looked at where no keystore says it.

    `resend_seconds`: a transaction that no block takes for so long is sent again at a higher fee.
    """

    dry_run: bool = False
    yes: bool = False
    as_json: bool = False
    provider: str | None = None
    resend_seconds: float = RESEND_SECONDS
