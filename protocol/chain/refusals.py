"""What a node means when it won't take a transaction: nodes tell refusals apart by words only.

In: `NodeRefused` of `eth_sendRawTransaction`. Out: whether it has the transaction already, whether the nonce is
somebody else's, whether nothing can be said. Words: geth's, and those of nodes that follow it, anvil's and ours.
"""

from __future__ import annotations

from protocol.errors import ChainError, NodeRefused

_KNOWN = ("already known", "already imported", "known transaction")
_NONCE_USED = ("nonce too low", "replacement transaction underpriced")
_POOR = ("insufficient funds", "insufficient balance")
_UNCERTAIN_CODES = frozenset({-32603, -32005, -32002})
"""Internal error, limit passed, resource unavailable (EIP-1474): the transaction may have gone on all the same."""


def is_known(error: ChainError) -> bool:
    """The node has this very transaction."""
    return _says(error, _KNOWN)


def is_nonce_used(error: ChainError) -> bool:
    """Another transaction with this nonce is mined, or waits and pays as much."""
    return _says(error, _NONCE_USED)


def is_poor(error: ChainError) -> bool:
    """The account has too few coins for gas and value."""
    return _says(error, _POOR)


def is_uncertain(error: ChainError) -> bool:
    """Whether the node may have taken it: it didn't answer, or with an error about itself."""
    return not isinstance(error, NodeRefused) or error.code in _UNCERTAIN_CODES


def _says(error: ChainError, texts: tuple[str, ...]) -> bool:
    message = error.message.lower() if isinstance(error, NodeRefused) else ""
    return any(text in message for text in texts)
