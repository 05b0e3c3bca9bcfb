"""Whatever a worker sends ends in the verdict that it deserves: a table of lies, each with its reason and its cost.

Cheats that need a running model to be told apart from honest work are in tests/attacks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.canonical import canonical_hash, canonical_json, hex0x
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import HEADER_KEY, SCHEMA, Rollout, content_hash
from protocol.wire import Signed, Submission, Task
from tests.unit.verifier.verifier_world import COORDINATOR, DEADLINE, DOMAIN, NODE, World
from verifier.case import Dossier
from verifier.pipeline import Finding, examine

R = RejectReason
Rows = list[Rollout]
Lie = Callable[[World, Rows], Dossier]
OTHER = hex0x(b"\x99" * 32)


@dataclass(frozen=True)
class Case:
    """A lie, and what it costs. `needs_model`: it isn't seen before the model has run."""

    name: str
    lie: Lie
    reason: RejectReason
    outcome: Outcome = Outcome.DROP
    needs_model: bool = False


def first_row(name: str, reason: RejectReason, outcome: Outcome = Outcome.DROP, **changes: Any) -> Case:
    """The first row with other values; functions are given the row."""

    def lie(world: World, rows: Rows) -> Dossier:
        values = {key: change(rows[0]) if callable(change) else change for key, change in changes.items()}
        return world.dossier([replace(rows[0], **values), *rows[1:]])

    return Case(name, lie, reason, outcome)


def table(
    name: str, change: Callable[[pa.Table], pa.Table], reason: RejectReason = R.SCHEMA_INVALID, **how: Any
) -> Case:
    """An honest file's columns, changed and written again, in the name of the honest rows."""

    def lie(world: World, rows: Rows) -> Dossier:
        honest = world.dossier(rows)
        columns = pq.read_table(io.BytesIO(honest.file)).replace_schema_metadata()
        metadata = {HEADER_KEY: canonical_json(world.header().model_dump(mode="json"))}
        return replace(honest, file=written(change(columns), metadata, **how))

    return Case(name, lie, reason)


def header(name: str, reason: RejectReason = R.SCHEMA_INVALID, raw: bytes | None = None, **changes: Any) -> Case:
    """An honest file whose metadata say something else."""

    def lie(world: World, rows: Rows) -> Dossier:
        honest = world.dossier(rows)
        document = world.header().model_dump(mode="json") | changes
        text = json.dumps(document).encode() if raw is None else raw
        return replace(honest, file=written(pq.read_table(io.BytesIO(honest.file)), {HEADER_KEY: text}))

    return Case(name, lie, reason)


def written(columns: pa.Table, metadata: dict[bytes, bytes], **how: Any) -> bytes:
    plain = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, columns.replace_schema_metadata().schema, **(plain | how)) as writer:
        writer.write_table(columns.replace_schema_metadata())
        writer.add_key_value_metadata(metadata)
    return buffer.getvalue()


def file(name: str, change: Callable[[bytes], bytes], reason: RejectReason = R.SCHEMA_INVALID) -> Case:
    def lie(world: World, rows: Rows) -> Dossier:
        honest = world.dossier(rows)
        return replace(honest, file=change(honest.file))

    return Case(name, lie, reason)


def rows(name: str, change: Callable[[Rows], Sequence[Rollout]], reason: RejectReason, outcome: Outcome) -> Case:
    return Case(name, lambda world, honest: world.dossier(change(honest)), reason, outcome)


def signed(name: str, lie: Lie, reason: RejectReason) -> Case:
    return Case(name, lie, reason)


def claims(world: World, honest: Rows, **changes: Any) -> Dossier:
    """Signed by the node, with other values in the submission."""
    dossier = world.dossier(honest)
    message = dossier.submission.message.model_copy(update=changes)
    return replace(dossier, submission=Signed[Submission].by(NODE, message, DOMAIN))


def leased(world: World, honest: Rows, by: Any = COORDINATOR, **changes: Any) -> Dossier:
    """For a task with other values."""
    dossier = world.dossier(honest)
    message = dossier.task.message.model_copy(update=changes)
    return replace(dossier, task=Signed[Task].by(by, message, DOMAIN))


def facts(world: World, honest: Rows, **changes: Any) -> Dossier:
    dossier = world.dossier(honest)
    return replace(dossier, facts=replace(dossier.facts, **changes))


def column(name: str, values: Any, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """Another column under a name that the file must have."""

    def change(columns: pa.Table) -> pa.Table:
        array = pa.array(values if isinstance(values, list) else [values] * columns.num_rows, type=kind)
        return columns.set_column(columns.schema.get_field_index(name), name, array)

    return change


def cell(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Another value in the first row."""

    def change(columns: pa.Table) -> pa.Table:
        values = columns.column(name).to_pylist()
        return column(name, [value, *values[1:]], SCHEMA.field(name).type)(columns)

    return change


def with_token(place: int, token: int) -> Callable[[Rollout], np.ndarray]:
    def change(row: Rollout) -> np.ndarray:
        tokens = row.output_tokens.copy()
        tokens[place] = token
        return tokens

    return change


def with_word(place: int, word: int) -> Callable[[Rollout], bytes]:
    """The first proof with another uint16 at this place; place 0 is its modulus."""

    def change(row: Rollout) -> bytes:
        words = np.frombuffer(row.proofs, dtype=">u2").copy()
        words[place] = word
        return words.tobytes()

    return change


def constant_proof(row: Rollout) -> bytes:
    """As long as a proof has to be, of a polynomial that has one value everywhere."""
    words = np.frombuffer(row.proofs, dtype=">u2").reshape(-1, 129).copy()
    words[:, 2:] = 0
    return words.tobytes()


def longer(num_tokens: int) -> dict[str, Any]:
    """A completion of so many tokens, with as many log-probs and proofs."""
    return {
        "output_tokens": np.full(num_tokens, 5, dtype=np.int32),
        "output_logprobs": np.zeros(num_tokens, dtype=np.float32),
        "proofs": lambda row: row.proofs[:258] * -(-num_tokens // 32),
    }


def values(name: str, change: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """A changed copy of an array of the row."""
    return {name: lambda row: np.asarray(change(getattr(row, name).copy()), dtype=getattr(row, name).dtype)}


def drop_one(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def set_first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[0] = value
        return array

    return change


def swap_groups(honest: Rows) -> Rows:
    return [*honest[8:16], *honest[:8], *honest[16:]]


def repeat_first(honest: Rows) -> Rows:
    """The first rollout in place of those of its group that came out differently."""
    same = [replace(honest[0], target_length=row.target_length) for row in honest[:8]]
    assert any(not np.array_equal(row.output_tokens, honest[0].output_tokens) for row in honest[:8])
    return [*same, *honest[8:]]


def proofs_of_others(honest: Rows) -> Rows:
    """Each row with the proofs of the next row of as many chunks."""
    moved = []
    for row in honest:
        others = [o for o in honest if len(o.proofs) == len(row.proofs) and o.proofs != row.proofs]
        moved.append(replace(row, proofs=others[0].proofs if others else row.proofs))
    return moved


def bare(num_tokens: int) -> Callable[[pa.Table], pa.Table]:
    """Rows of zeros: a few hundred bytes for every megabyte."""
    tokens = np.zeros(num_tokens, dtype=np.int32)
    return lambda columns: column("output_tokens", [tokens] * 32, pa.list_(pa.int32()))(columns)


SCHEMA_CASES = (
    file("an empty file", lambda data: b""),
    file("no parquet at all", lambda data: b"\x89PNG" + data),
    file("half a file", lambda data: data[: len(data) // 2]),
    file("a byte short", lambda data: data[:-1]),
    file("a byte long", lambda data: data + b"\0"),
    file("two files in one", lambda data: data + data),
    file("a footer of lists in lists", lambda data: b"PAR1" + b"\x19" * 5000 + (5000).to_bytes(4, "little") + b"PAR1"),
    table("a missing column", lambda c: c.drop_columns(["step"])),
    table("an extra column", lambda c: c.append_column("more", pa.array([1] * c.num_rows))),
    table("a column twice", lambda c: c.append_column("step", c.column("step"))),
    table("columns in another order", lambda c: c.select(c.column_names[::-1])),
    table("64-bit tokens", column("output_tokens", [[1]] * 32, pa.list_(pa.int64()))),
    table("64-bit rewards", column("task_rewards", 1.0, pa.float64())),
    table("rewards as text", column("task_rewards", "1.0", pa.string())),
    table("lists of lists", column("output_tokens", [[[1]]] * 32, pa.list_(pa.list_(pa.int32())))),
    table("structs", column("step", [{"a": 1}] * 32, pa.struct([("a", pa.int32())]))),
    table("a null row", cell("output_tokens", None)),
    table("a null in a list", cell("output_tokens", [1, None])),
    table("a null reward", cell("task_rewards", None)),
    table("no completion", cell("output_tokens", [])),
    table("no prompt", cell("input_tokens", [])),
    table("text that is no text", column("task_type", [b"\xff\xfe"] * 32, pa.binary())),
    table("no rows", lambda c: c.slice(0, 0)),
    table("more rows than were asked for", lambda c: pa.concat_tables([c, c])),
    table("dictionary pages", lambda c: c, use_dictionary=True),
    table("pages of the second version", lambda c: c, data_page_version="2.0"),
    table("delta encoding", lambda c: c, column_encoding={"step": "DELTA_BINARY_PACKED"}),
    table("a schema of Arrow's beside ours", lambda c: c, store_schema=True),
    table("a small file of huge rows", bare(1 << 20)),
    table("a row past any limit", cell("output_tokens", [5] * 9000)),
    header("metadata that are no JSON", raw=b"{"),
    header("metadata nested past reason", raw=b'{"a":' * 900),
    header("no task", raw=b"{}"),
    header("another schema version", schema_version=2),
    header("a task that is no id", task_id="0x12"),
    header("more in the metadata than belongs there", note="x"),
    header("an endless temperature", sampling={"temperature": float("inf")}),
    header("a temperature without a canonical form", sampling={"temperature": 1e-300}),
    header("a group size without a canonical form", group_size=10**30),
    first_row("a log-prob that is no number", R.SCHEMA_INVALID, **values("output_logprobs", set_first(np.nan))),
    first_row("an infinite log-prob", R.SCHEMA_INVALID, **values("output_logprobs", set_first(-np.inf))),
    first_row("a reward that is no number", R.SCHEMA_INVALID, task_reward=float("nan")),
    first_row("an infinite reward", R.SCHEMA_INVALID, task_reward=float("inf")),
    first_row("fewer log-probs than tokens", R.SCHEMA_INVALID, **values("output_logprobs", drop_one)),
    first_row("an unknown finish reason", R.SCHEMA_INVALID, finish_reason="eos"),
    first_row("a long text", R.SCHEMA_INVALID, task_type="x" * 300),
)

ENVELOPE_CASES = (
    signed(
        "another file than the signed one",
        lambda w, r: replace(w.dossier(r), submission=w.dossier(r[::-1]).submission),
        R.FILE_MISMATCH,
    ),
    signed(
        "one byte of content changed",
        lambda w, r: replace(w.dossier(r), file=w.dossier(changed(r)).file),
        R.FILE_MISMATCH,
    ),
    signed("a file for another task", lambda w, r: w.dossier(r, header=w.header(counter=1)), R.FILE_MISMATCH),
    signed("signed by somebody else", lambda w, r: foreign_signature(w, r), R.SIGNATURE_INVALID),
    signed("not signed", lambda w, r: unsigned(w, r), R.SIGNATURE_INVALID),
    signed("a counter that wasn't leased", lambda w, r: claims(w, r, counter=7), R.LEASE_UNKNOWN),
    signed("another pool", lambda w, r: claims(w, r, pool_id=2), R.LEASE_UNKNOWN),
    signed("a policy version that wasn't leased", lambda w, r: claims(w, r, policy_version=3), R.LEASE_UNKNOWN),
    signed("a task of another node", lambda w, r: leased(w, r, node=COORDINATOR.address), R.LEASE_UNKNOWN),
    signed("a task that the node signed itself", lambda w, r: leased(w, r, by=NODE), R.LEASE_UNKNOWN),
    signed("other rules than the lease's", lambda w, r: claims(w, r, rules_hash=OTHER), R.LEASE_UNKNOWN),
    signed("rules that the pool never had", lambda w, r: facts(w, r, rules_hashes=frozenset()), R.RULES_CHANGED),
    signed("after the deadline", lambda w, r: facts(w, r, received_time=DEADLINE + 1), R.LEASE_EXPIRED),
    signed("a beacon that the chain doesn't have", lambda w, r: facts(w, r, beacon_hash=OTHER), R.REORGED),
    signed("no beacon at all", lambda w, r: facts(w, r, beacon_hash=None), R.REORGED),
)

CONTENT_CASES = (
    rows("too few rows", lambda r: r[:-1], R.VALUE_OUT_OF_BOUNDS, Outcome.DROP),
    rows("a single row", lambda r: r[:1], R.VALUE_OUT_OF_BOUNDS, Outcome.DROP),
    first_row("a negative token", R.VALUE_OUT_OF_BOUNDS, output_tokens=with_token(0, -1)),
    first_row("a token past the vocabulary", R.VALUE_OUT_OF_BOUNDS, output_tokens=with_token(0, 2**31 - 1)),
    first_row("the least token there is", R.VALUE_OUT_OF_BOUNDS, output_tokens=with_token(-1, -(2**31))),
    first_row("a negative prompt token", R.VALUE_OUT_OF_BOUNDS, **values("input_tokens", set_first(-5))),
    first_row("a completion past the limit", R.VALUE_OUT_OF_BOUNDS, **longer(41)),
    first_row("a completion of thousands", R.VALUE_OUT_OF_BOUNDS, **longer(8000)),
    first_row("another policy version", R.VALUE_OUT_OF_BOUNDS, step=1),
    first_row("the policy version before the first", R.VALUE_OUT_OF_BOUNDS, step=-1),
    first_row("a log-prob above zero", R.VALUE_OUT_OF_BOUNDS, **values("output_logprobs", set_first(0.5))),
    first_row("a log-prob of no probability", R.VALUE_OUT_OF_BOUNDS, **values("output_logprobs", set_first(-1e30))),
    first_row("a reward past counting", R.VALUE_OUT_OF_BOUNDS, task_reward=float(np.float32(1e30))),
    Case("other sampling in the header", lambda w, r: other_header(w, r, temperature=0.5), R.VALUE_OUT_OF_BOUNDS),
    Case("more units than the lease pays", lambda w, r: leased_units(w, r), R.VALUE_OUT_OF_BOUNDS),
    first_row("a changed prompt", R.WRONG_PROMPTS, Outcome.SLASH, **values("input_tokens", set_first(5))),
    first_row("a shorter prompt", R.WRONG_PROMPTS, Outcome.SLASH, **values("input_tokens", drop_one)),
    first_row("another problem", R.WRONG_PROMPTS, Outcome.SLASH, problem_id="chain_sum:1"),
    first_row("another task type", R.WRONG_PROMPTS, Outcome.SLASH, task_type="reasoning_gym/other"),
    first_row("a target length that nobody set", R.WRONG_PROMPTS, Outcome.SLASH, target_length=40),
    rows("groups in another order", swap_groups, R.WRONG_PROMPTS, Outcome.SLASH),
    Case("the prompts of another counter", lambda w, r: other_counter(w, r), R.WRONG_PROMPTS, Outcome.SLASH),
    first_row("no proof", R.PROOF_MALFORMED, Outcome.SLASH, proofs=b""),
    first_row("a null proof", R.PROOF_MALFORMED, Outcome.SLASH, proofs=lambda row: bytes(len(row.proofs))),
    first_row("a proof of four bytes", R.PROOF_MALFORMED, Outcome.SLASH, proofs=b"\xff\xd9\x40\x00"),
    first_row("a proof a byte short", R.PROOF_MALFORMED, Outcome.SLASH, proofs=lambda row: row.proofs[:-1]),
    first_row("a proof a coefficient long", R.PROOF_MALFORMED, Outcome.SLASH, proofs=lambda row: row.proofs + b"\0\0"),
    first_row("a proof too many", R.PROOF_MALFORMED, Outcome.SLASH, proofs=lambda row: row.proofs + row.proofs[:258]),
    first_row("a modulus past the prime", R.PROOF_MALFORMED, Outcome.SLASH, proofs=with_word(0, 65498)),
    first_row("a modulus below the coefficients", R.PROOF_MALFORMED, Outcome.SLASH, proofs=with_word(0, 127)),
    first_row("a modulus that such states can't have", R.PROOF_MALFORMED, Outcome.SLASH, proofs=with_word(0, 128)),
    first_row("a coefficient that is the prime", R.PROOF_MALFORMED, Outcome.SLASH, proofs=with_word(5, 65497)),
    first_row("a coefficient past the prime", R.PROOF_MALFORMED, Outcome.SLASH, proofs=with_word(128, 65535)),
    Case("cut before its end", lambda w, r: w.dossier([*r[:-1], cut_short(r)]), R.TERMINATION_INVALID),
    Case("past the end", lambda w, r: w.dossier([*r[:-1], gone_on(w, r)]), R.TERMINATION_INVALID),
    Case("a limit that wasn't reached", lambda w, r: w.dossier(renamed_end(r)), R.TERMINATION_INVALID),
    rows(
        "false rewards",
        lambda r: [replace(x, task_reward=1 - x.task_reward) for x in r],
        R.REWARD_MISMATCH,
        Outcome.SLASH,
    ),
    first_row("a reward a little off", R.REWARD_MISMATCH, Outcome.SLASH, task_reward=float(np.float32(1 - 2**-20))),
)

MODEL_CASES = (
    rows(
        "constant proofs", lambda r: [replace(x, proofs=constant_proof(x)) for x in r], R.TOPLOC_MISMATCH, Outcome.SLASH
    ),
    rows("proofs of other rows", proofs_of_others, R.TOPLOC_MISMATCH, Outcome.SLASH),
    rows("a rollout twice", repeat_first, R.SAMPLING_MISMATCH, Outcome.SLASH),
    rows(
        "false log-probs",
        lambda r: [replace(x, output_logprobs=x.output_logprobs - np.float32(0.5)) for x in r],
        R.LOGPROB_MISMATCH,
        Outcome.DROP,
    ),
)


def changed(honest: Rows) -> Rows:
    return [replace(honest[0], task_reward=1 - honest[0].task_reward), *honest[1:]]


def foreign_signature(world: World, honest: Rows) -> Dossier:
    dossier = world.dossier(honest)
    return replace(dossier, submission=Signed[Submission].by(COORDINATOR, dossier.submission.message, DOMAIN))


def unsigned(world: World, honest: Rows) -> Dossier:
    dossier = world.dossier(honest)
    return replace(dossier, submission=dossier.submission.model_copy(update={"signature": "0x" + "00" * 65}))


def other_header(world: World, honest: Rows, **changes: Any) -> Dossier:
    sampling = world.rules.sampling.model_copy(update=changes)
    return world.dossier(honest, header=world.header().model_copy(update={"sampling": sampling}))


def leased_units(world: World, honest: Rows) -> Dossier:
    """A lease that pays for fewer tokens than the file has; its id is in the file."""
    task = world.task().model_copy(update={"max_units": 10})
    head = world.header().model_copy(update={"task_id": task.id(DOMAIN)})
    return replace(world.dossier(honest, header=head), task=Signed[Task].by(COORDINATOR, task, DOMAIN))


def other_counter(world: World, honest: Rows) -> Dossier:
    return world.dossier(honest, counter=1)


def stopped(honest: Rows) -> int:
    """A rollout that ended in EOS, of a few tokens."""
    return next(i for i, r in enumerate(honest) if r.finish_reason == "stop" and 2 < r.num_units < 32)


def cut_short(honest: Rows) -> Rollout:
    last = honest[-1]
    return replace(
        last,
        output_tokens=last.output_tokens[:1],
        output_logprobs=last.output_logprobs[:1],
        proofs=last.proofs[:258],
        finish_reason="stop",
    )


def gone_on(world: World, honest: Rows) -> Rollout:
    last = honest[-1]
    tokens = last.output_tokens.copy()
    tokens[0] = world.environment.tokenizer.eos_ids[0]
    return replace(last, output_tokens=tokens)


def renamed_end(honest: Rows) -> Rows:
    index = stopped(honest)
    return [*honest[:index], replace(honest[index], finish_reason="length"), *honest[index + 1 :]]


def no_model() -> NoReturn:
    raise RuntimeError("the model isn't needed for this")


CHEAP_CASES = SCHEMA_CASES + ENVELOPE_CASES + CONTENT_CASES
ALL_CASES = CHEAP_CASES + MODEL_CASES


def judged(world: World, honest: Rows, case: Case, **instruments: Any) -> Finding:
    finding = examine(case.lie(world, honest), world.instruments(**instruments))
    assert len(canonical_hash(finding.evidence.as_json())) == 66
    return finding


@pytest.mark.parametrize("case", CHEAP_CASES, ids=lambda case: case.name)
def test_a_lie_ends_in_its_reason_before_the_model_is_asked(world: World, honest: Rows, case: Case) -> None:
    finding = judged(world, honest, case, load_model=no_model)
    assert (finding.reason, finding.outcome) == (case.reason, case.outcome), finding.evidence.checks[-1].detail


@pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.name)
def test_a_lie_that_the_model_finds_ends_in_its_reason(world: World, honest: Rows, case: Case) -> None:
    finding = judged(world, honest, case)
    assert (finding.reason, finding.outcome) == (case.reason, case.outcome)


def test_content_that_was_seen_before_is_a_duplicate(world: World, honest: Rows) -> None:
    instruments = world.instruments(load_model=no_model, find_twin=lambda *_: OTHER)
    finding = examine(world.dossier(honest), instruments)
    assert (finding.reason, finding.outcome) == (R.DUPLICATE, Outcome.DROP)


def test_a_file_over_the_pools_limit_isnt_read(world: World, honest: Rows) -> None:
    dossier = world.dossier(honest)
    rules = world.rules.model_copy(update={"max_file_bytes": len(dossier.file) - 1})
    finding = examine(replace(dossier, rules=rules), world.instruments(load_model=no_model))
    assert (finding.reason, finding.outcome) == (R.TOO_LARGE, Outcome.DROP)


def test_the_table_has_every_reason_that_a_verifier_gives() -> None:
    """The others are the coordinator's: who may lease, when, and how much."""
    at_the_door = {
        *(R.NOT_REGISTERED, R.UNDERSTAKED, R.LEASE_LIMIT, R.POOL_PAUSED, R.POOL_CLOSED, R.ESCROW_EMPTY),
        *(R.RATE_LIMITED, R.STORAGE_FULL, R.NO_DEMAND, R.STALE_POLICY, R.FILE_MISSING),
        R.RENEWAL_LIMIT,
    }
    tested = {case.reason for case in ALL_CASES} | {R.DUPLICATE, R.TOO_LARGE}
    assert tested == set(RejectReason) - at_the_door
    assert all(case.outcome != Outcome.ACCEPT for case in ALL_CASES)
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES)


def test_what_differs_in_its_encoding_only_is_accepted(world: World, honest: Rows) -> None:
    """The negative twin: row groups, small pages and another codec change no content."""
    honest_file = world.dossier(honest)
    columns = pq.read_table(io.BytesIO(honest_file.file))
    metadata = {HEADER_KEY: canonical_json(world.header().model_dump(mode="json"))}
    for how in ({"compression": "none"}, {"data_page_size": 1}, {"compression": "gzip"}):
        finding = examine(replace(honest_file, file=written(columns, metadata, **how)), world.instruments())
        assert (finding.outcome, finding.reason) == (Outcome.ACCEPT, None)
    assert content_hash(world.header(), honest) == honest_file.submission.message.content_hash
