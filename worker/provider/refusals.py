"""Why a contract refuses what a provider wants, in words: what, why with values, what to do.

In: `TransactionReverted` with its decoded custom error, of a simulation or of a transaction. Out: `NotEligible`.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.amount import format_amount
from protocol.chain.pool import FOREVER
from protocol.errors import NotEligible, TransactionReverted
from protocol.events import utc
from protocol.wire import ZERO_ADDRESS

Words = tuple[str, str, str]


def in_words(error: TransactionReverted) -> NotEligible:
    """The same refusal for people; its custom error stays in it."""
    tell = _WORDS.get(error.name)
    if tell is None:
        return NotEligible(error.what, error.why, error.todo or "`proofpool provider nodes` shows how things stand")
    what, why, todo = tell(*error.arguments)
    return NotEligible(what, f"{why} ({error.name})", todo)


def _of(have_wei: int, want_wei: int) -> str:
    return f"{format_amount(have_wei)} of {format_amount(want_wei)} credits"


def _insufficient_balance(account: str, balance: int, needed: int) -> Words:
    return "there are too few credits", f"{_of(balance, needed)} in {account}", f"send credits to {account}"


def _insufficient_stake(wanted: int, available: int) -> Words:
    return "there is too little free stake", _of(available, wanted), "`proofpool provider stake` deposits more"


def _node_taken(node: str, provider: str) -> Words:
    whose = "an account that removed it" if provider == ZERO_ADDRESS else provider
    return "the node is added already", f"{node} is of {whose}", "a key never moves to another provider: make a new one"


def _expired(deadline: int) -> Words:
    return (
        "the node's consent has expired",
        f"it was good until {utc(deadline)}",
        "`proofpool worker consent` makes one",
    )


def _not_yet(ready_time: int) -> Words:
    return "it isn't due yet", f"it is due at {utc(ready_time)}", "try again then"


def _not_claimable(time: int) -> Words:
    if time == FOREVER:
        return "these earnings can't be claimed yet", "a dispute over them is open", "wait for its end"
    return "these earnings can't be claimed yet", f"they can be from {utc(time)} on", "try again then"


_NODES = "`proofpool provider nodes` lists yours"
_WORDS: dict[str, Callable[..., Words]] = {
    "ERC20InsufficientBalance": _insufficient_balance,
    "ERC20InsufficientAllowance": lambda spender, allowance, needed: (
        "the contract may not take the credits",
        f"it may take {_of(allowance, needed)}",
        "the same command again lets it",
    ),
    "InsufficientStake": _insufficient_stake,
    "InsufficientAllotment": lambda wanted, available: (
        "the node doesn't have that much",
        f"{_of(available, wanted)} are allotted and not unbonding yet",
        _NODES,
    ),
    "NodeTaken": _node_taken,
    "NotAuthorized": lambda node: ("the consent isn't the node's", node, "have it made on the node's machine"),
    "InvalidAccountNonce": lambda account, nonce: (
        "the node's consent is used up",
        f"{account} is at nonce {nonce}",
        "`proofpool worker consent` makes a new one",
    ),
    "AuthorizationExpired": _expired,
    "NotNodeOwner": lambda caller, node: ("the node isn't this provider's", f"{node}, asked by {caller}", _NODES),
    "NodeInactive": lambda node: ("the node is removed", node, "`proofpool provider authorize` takes it in again"),
    "PoolNotOpen": lambda pool_id: ("the pool isn't open", f"pool {pool_id}", "`proofpool chain info` lists pools"),
    "NoSuchPool": lambda pool_id: ("there is no such pool", f"pool {pool_id}", "`proofpool chain info` lists pools"),
    "AmountZero": lambda: ("nothing would be moved", "the amount is zero", "give an amount"),
    "NotYet": _not_yet,
    "NothingToRelease": lambda: (
        "nothing can be let go",
        "what is unbonding is held by an open case, or gone",
        "`proofpool provider nodes` shows what is held",
    ),
    "NotClaimableYet": _not_claimable,
    "NothingToClaim": lambda: (
        "there is nothing to claim",
        "what these earnings prove is paid, or withheld by cases",
        "`proofpool provider claim` takes the newest earnings that can be claimed",
    ),
    "NoEarnings": lambda epoch: ("no such earnings are on chain", f"epoch {epoch}", "wait for them"),
    "FundsExhausted": lambda wanted, funds: (
        "the pool can't pay",
        f"it has {_of(funds, wanted)}",
        "unclaimed earnings of a closed pool lapse after 180 days; `proofpool audit money` shows its books",
    ),
}
