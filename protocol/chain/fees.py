"""What a transaction pays per gas: when it is sent first, and when it is stuck.

In: the chain's base fee, or a transaction that no block took. Out: fees in wei per gas, never above the policy's limit.
Everything that sends asks here: `protocol/chain/lane.py` and `coordinator/sender.py`. Source: EIP-1559.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocol.chain.transaction import Transaction

GWEI = 10**9
NUMERATOR, DENOMINATOR = 9, 8
"""A replacement pays 12.5 % more: nodes ask for 10, and some for 12.5."""


@dataclass(frozen=True)
class FeePolicy:
    """What a transaction may cost.

    Example: `FeePolicy().raised(stuck, client.head().base_fee_wei)`.
    """

    tip_wei: int = GWEI
    """Priority fee per gas."""
    max_fee_wei: int = 500 * GWEI
    """The most per gas, replacements included."""
    gas_margin: float = 1.3
    """Gas limit over the estimate: state moves on until the transaction is mined."""

    def gas_limit(self, estimate: int) -> int:
        return int(estimate * self.gas_margin)

    def fee_wei(self, base_fee_wei: int) -> int:
        """Twice the base fee and the tip: it stays valid for six full blocks."""
        return min(2 * base_fee_wei + self.tip_wei, self.max_fee_wei)

    def priced(self, call: Transaction, base_fee_wei: int) -> Transaction:
        """The call with the fees of now."""
        fee = self.fee_wei(base_fee_wei)
        return replace(call, max_fee_wei=fee, max_priority_fee_wei=min(self.tip_wei, fee))

    def raised(self, stuck: Transaction, base_fee_wei: int) -> Transaction:
        """The same call and nonce with as much more as nodes ask of a replacement; unchanged at the limit."""
        fee = max(_more(stuck.max_fee_wei), self.fee_wei(base_fee_wei))
        tip = _more(stuck.max_priority_fee_wei)
        if max(fee, tip) > self.max_fee_wei:
            return stuck
        return replace(stuck, max_fee_wei=fee, max_priority_fee_wei=tip)


def _more(fee_wei: int) -> int:
    return -(-fee_wei * NUMERATOR // DENOMINATOR)
