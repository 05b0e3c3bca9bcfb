"""Every error that proofpool raises, and the exit code that each one ends a command with.

    ProofpoolError                    1   something went wrong that nothing below names
    ├── UsageError                    2   the call itself is wrong
    │   └── ConfigError                   a configuration file, variable or flag is wrong
    ├── VerificationFailed            3   evidence doesn't hold; the answer is "no"
    │   ├── MalformedProof                bytes that are no canonical TOPLOC proof
    │   ├── MalformedFile                 bytes that are no valid rollout file
    │   │   └── MalformedRow                  one row of it that no rollout has
    │   ├── SignatureInvalid              no signature, or not by the address that it names
    │   └── ShardCorrupt                  a shard or manifest that doesn't match its hash
    ├── KeyFailure                    4   a keystore that can't be opened or used
    ├── Unreachable                   5   another process didn't answer
    │   ├── ChainError                    the chain answered with an error
    │   │   ├── NodeRefused               a JSON-RPC error: its code, message and data
    │   │   ├── WrongChain                another chain id or other code than was expected
    │   │   ├── AccountShared             another process sends with the same account
    │   │   ├── GasOverBlock              a call would take more gas than a block has
    │   │   └── TransactionReverted       a contract refused, with its decoded custom error
    │   ├── CoordinatorUnreachable        the coordinator didn't answer in time
    │   └── RankLost                      another process of the same trainer is gone
    ├── NotFound                      1   an id that names nothing here
    ├── NotEligible                   6   not registered, too little stake, wrong version
    │   └── RolloutTooLong                more tokens than the engine has room for, as it is set up
    ├── SandboxBroken                 1   a sandbox didn't start, or was ended by the machine
    └── Rejected                      7   refused by the protocol, with a RejectReason

An error says what happened, why (with the values) and what to do; the command line prints
these three lines and no traceback unless `--debug` is given.
"""

from __future__ import annotations

from protocol.reasons import RejectReason


class ProofpoolError(Exception):
    """The root: `what` went wrong, `why` with values, and what `todo` about it."""

    exit_code = 1
    retry_after_seconds: float = 0.0
    """How long who refused asks to be left alone (`Retry-After`); 0 where it didn't say."""

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    def __str__(self) -> str:
        return " | ".join(part for part in (self.what, self.why, self.todo) if part)


class UsageError(ProofpoolError):
    """The command was called in a way that can't work."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration value is missing, unknown or contradicts another."""


class VerificationFailed(ProofpoolError):
    """Evidence was checked and doesn't hold."""

    exit_code = 3


class MalformedProof(VerificationFailed):
    """Proof bytes that break the canonical encoding (length, modulus or coefficient range)."""


class MalformedFile(VerificationFailed):
    """A rollout file that breaks the schema, a bound, or can't be parsed at all."""


class MalformedRow(MalformedFile):
    """A rollout that breaks a bound, in a file that can be read otherwise; `row` counts from 0."""

    def __init__(self, row: int, fault: str, why: str = "") -> None:
        super().__init__(f"row {row} {fault}", why)
        self.row = row
        self.fault = f"{fault}: {why}" if why else fault


class NotCanonical(VerificationFailed):
    """A number that canonical JSON can't hold, so that nothing with it in can be hashed."""


class SignatureInvalid(VerificationFailed):
    """A signature that is malformed, expired, for another domain, or by somebody else."""


class ShardCorrupt(VerificationFailed):
    """A manifest or shard whose bytes don't match the hash that was promised."""


class KeyFailure(ProofpoolError):
    """A keystore is missing, unreadable, or its password is wrong."""

    exit_code = 4


class Unreachable(ProofpoolError):
    """Another process didn't answer within its deadline."""

    exit_code = 5


class ChainError(Unreachable):
    """The chain's node answered with an error, or not at all."""


class NodeRefused(ChainError):
    """The node answered a call with a JSON-RPC error; `data` is what came with it, revert data for instance."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__("the chain's node refused a call", f"{method}: {message} (code {code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


class WrongChain(ChainError):
    """The node serves another chain id, or other contract code, than the configuration names."""


class AccountShared(ChainError):
    """A nonce of this process's account went to a transaction of another process."""


class GasOverBlock(ChainError):
    """A call would take more gas than a block has: no block could take it, or the node's estimate is wrong."""


class TransactionReverted(ChainError):
    """A contract refused the call; `name` and `arguments` are its decoded custom error."""

    def __init__(self, what: str, name: str = "", arguments: tuple[object, ...] = (), todo: str = "") -> None:
        super().__init__(what, f"{name}({', '.join(map(str, arguments))})" if name else "no revert data", todo)
        self.name = name
        self.arguments = arguments


class CoordinatorUnreachable(Unreachable):
    """The coordinator didn't answer within its deadline."""


class RankLost(Unreachable):
    """Another process of the same trainer ended, or didn't answer within the ranks' deadline."""


class SandboxBroken(ProofpoolError):
    """A sandbox couldn't be started, or was ended from outside: a fault of this machine, never of a program."""


class NotFound(ProofpoolError):
    """No object has this id here (HTTP 404)."""


class NotEligible(ProofpoolError):
    """The caller isn't registered, hasn't enough stake allotted, or runs another version."""

    exit_code = 6


class RolloutTooLong(NotEligible):
    """A request that the engine can never let in, as it is set up: none of those that came with it were added."""


class Rejected(ProofpoolError):
    """The protocol refused something, for a reason with a measured value and a threshold."""

    exit_code = 7

    def __init__(self, reason: RejectReason, detail: str = "", *, value: str = "", threshold: str = "") -> None:
        measured = f"{value} against {threshold}" if threshold else value
        super().__init__(f"refused: {reason.value}", "; ".join(p for p in (detail, measured) if p), reason.hint)
        self.reason = reason
        self.detail = detail
        self.value = value
        self.threshold = threshold
