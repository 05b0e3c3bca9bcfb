"""Native balances of the embedded chain, given when they are asked for: `anvil_setBalance`.

In: an address and the balance that it should have. Out: a transfer from the last development account, so that no state
changes outside of a block. It can only add; the balance is there with the next block.
"""

from __future__ import annotations

from protocol.canonical import from_hex0x, hex0x
from protocol.chain.transaction import Transaction
from testnet.chain.evm import FIRST_BASE_FEE_WEI, EmbeddedChain
from testnet.chain.genesis import NUM_ACCOUNTS, dev_signers
from testnet.chain.mempool import Refused
from testnet.chain.producer import Producer

TRANSFER_GAS = 21_000
MAX_FEE_WEI = 1000 * FIRST_BASE_FEE_WEI


def set_balance(chain: EmbeddedChain, producer: Producer, address: bytes, wei: int) -> None:
    """Raises Refused where that is less than there is, or more than the giver has."""
    missing = wei - chain.balance_wei(address, chain.number)
    if missing < 0:
        raise Refused(f"this node only adds to balances: {-missing} wei less were asked for")
    giver = dev_signers(NUM_ACCOUNTS)[-1]
    nonce = chain.nonce(from_hex0x(giver.address))
    call = Transaction(chain.chain_id, nonce, FIRST_BASE_FEE_WEI, MAX_FEE_WEI, TRANSFER_GAS, hex0x(address), missing)
    producer.send(from_hex0x(call.sign(giver).raw))
