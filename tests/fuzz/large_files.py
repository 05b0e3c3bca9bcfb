"""Files of up to 100 MB that are made to cost a verifier dearly.

In: a pool whose rules let such files in. Out: `LargeFile`s, each with the reason that it has to end in.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from protocol.canonical import canonical_json
from protocol.reasons import RejectReason
from protocol.rollouts import HEADER_KEY, SCHEMA, Rollout
from protocol.rules import SamplingRules
from protocol.toploc.encoding import proof_bytes
from tests.fuzz.parquet_mutation import ParquetFile
from tests.fuzz.thrift_tree import BYTE, LIST, Node
from tests.unit.verifier.verifier_world import World
from verifier.case import Dossier

MEGABYTE = 10**6
SIZE = 100 * MEGABYTE
GROUP_SIZE, NUM_GROUPS, NUM_TOKENS = 16, 16, 31_000
NUM_ROWS = GROUP_SIZE * NUM_GROUPS
RULES = {
    "group_size": GROUP_SIZE,
    "groups_per_task": NUM_GROUPS,
    "sampling": SamplingRules(max_new_tokens=NUM_TOKENS),
    "max_file_bytes": 2 * SIZE,
}
FRAME_BYTES = 1 << 24
PLAIN = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}


@dataclass(frozen=True)
class LargeFile:
    name: str
    make: Callable[[World], Dossier]
    reason: RejectReason


def small_rows(world: World) -> list[Rollout]:
    """Rows with the right prompts and little else."""
    prompts = world.terms().prompts
    return [
        Rollout(
            input_tokens=prompts[index // GROUP_SIZE].tokens,
            output_tokens=np.full(2, 5, dtype=np.int32),
            output_logprobs=np.zeros(2, dtype=np.float32),
            task_reward=0.0,
            proofs=canonical_proofs(2, index),
            step=0,
            problem_id=prompts[index // GROUP_SIZE].problem_id,
            task_type=prompts[index // GROUP_SIZE].task_type,
            target_length=-1,
            finish_reason="length",
        )
        for index in range(NUM_ROWS)
    ]


def canonical_proofs(num_tokens: int, seed: int) -> bytes:
    """Proofs of nothing, in the right form."""
    num_chunks = -(-num_tokens // 32)
    words = np.random.default_rng(seed).integers(0, 65497, (num_chunks, proof_bytes() // 2))
    words[:, 0] = 65497
    return words.astype(">u2").tobytes()


def full_rows(world: World) -> list[Rollout]:
    """Every row as long as the rules allow, of bytes that hardly compress; all right but for the proofs and rewards."""
    rng = np.random.default_rng(0)
    eos = set(world.environment.tokenizer.eos_ids)
    vocabulary = np.array([t for t in range(3, world.model.config.vocab_size) if t not in eos], dtype=np.int32)
    return [
        replace(
            row,
            output_tokens=rng.choice(vocabulary, NUM_TOKENS),
            output_logprobs=-rng.random(NUM_TOKENS).astype(np.float32),
            proofs=canonical_proofs(NUM_TOKENS, index),
        )
        for index, row in enumerate(small_rows(world))
    ]


def false_at_the_end(world: World) -> Dossier:
    """Everything has to be read and scored before the last row's reward turns out to be false."""
    rows = full_rows(world)
    problems = [world.environment.problem(prompt.problem.index) for prompt in world.terms().prompts]
    honest = [
        replace(row, task_reward=world.environment.reward(problems[index // GROUP_SIZE], row.output_tokens.tolist()))
        for index, row in enumerate(rows)
    ]
    return world.dossier([*honest[:-1], replace(honest[-1], task_reward=1 - honest[-1].task_reward)])


def foreign(world: World, file: bytes) -> Dossier:
    """A file under the signature of another one: what comes before the content hash has to stop it, or that does."""
    return replace(world.dossier(small_rows(world)[:1]), file=file)


def with_column(world: World, name: str, values: list[object]) -> bytes:
    honest = pq.read_table(io.BytesIO(world.dossier(small_rows(world)).file))
    index = honest.schema.get_field_index(name)
    table = honest.set_column(index, name, pa.array(values, type=SCHEMA.field(name).type)).replace_schema_metadata()
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **PLAIN) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({HEADER_KEY: canonical_json(world.header().model_dump(mode="json"))})
    return buffer.getvalue()


def taken_apart(world: World) -> ParquetFile:
    return ParquetFile.of(world.dossier(small_rows(world)).file)


def bomb(num_frames: int, claim: int | None) -> Callable[[World], Dossier]:
    """A page of zeros, many times 16 MiB, in a few kilobytes; `claim` is how large the page says that it is."""

    def make(world: World) -> Dossier:
        file = taken_apart(world)
        page = file.chunks[1][0]
        page.body = zstandard.ZstdCompressor(level=19).compress(bytes(FRAME_BYTES)) * num_frames
        page.header.find(2).value = num_frames * FRAME_BYTES if claim is None else claim
        page.header.find(3).value = len(page.body)
        return foreign(world, file.assemble(mend=True))

    return make


def claimed_rows(world: World) -> Dossier:
    """100 MB of tokens in one row group that says it has 2^31 rows."""
    file = ParquetFile.of(with_column(world, "output_tokens", random_tokens(NUM_VALUES - 10**5)))
    file.footer.find(3).value = 2**31
    file.footer.find(4, 0, 3).value = 2**31
    return foreign(world, file.assemble(mend=True))


NUM_VALUES = 3 * NUM_TOKENS * NUM_ROWS
"""As many as such a pool's files may hold, over all columns."""


def random_tokens(num_tokens: int) -> list[object]:
    rng = np.random.default_rng(1)
    each = num_tokens // NUM_ROWS
    return [rng.integers(0, 2**31, each, dtype=np.int32) for _ in range(NUM_ROWS)]


def one_long_row(world: World) -> Dossier:
    tokens = np.random.default_rng(1).integers(0, 2**31, NUM_VALUES - 10**5, dtype=np.int32)
    short = np.zeros(1, dtype=np.int32)
    return foreign(world, with_column(world, "output_tokens", [tokens] + [short] * (NUM_ROWS - 1)))


def long_proofs(world: World) -> Dossier:
    rng = np.random.default_rng(1)
    return foreign(world, with_column(world, "proofs", [rng.bytes(SIZE // NUM_ROWS) for _ in range(NUM_ROWS)]))


def long_text(world: World) -> Dossier:
    return foreign(
        world,
        with_column(world, "problem_id", [np.random.default_rng(1).bytes(SIZE // 2).hex()] + ["p"] * (NUM_ROWS - 1)),
    )


def many_short_lists(world: World) -> Dossier:
    """100 MB of completions without any token in them."""
    file = ParquetFile.of(with_column(world, "output_tokens", [[] for _ in range(NUM_ROWS)]))
    page = file.chunks[1][0]
    file.chunks[1] = [page] * (SIZE // (len(page.body) + 30))
    return foreign(world, file.assemble(mend=True))


def page_header_of_flags(world: World) -> Dossier:
    """A page header with a list of 100 million one-byte items."""
    file = taken_apart(world)
    flags = Node(LIST, SIZE, children=[], number=9, item_kind=BYTE)
    file.chunks[1][0].header.children.append(flags)
    file.chunks[1][0].body = bytes(SIZE) + file.chunks[1][0].body
    return foreign(world, file.assemble(mend=True))


def footer_of_lists(world: World) -> Dossier:
    deep = b"\x19" * (SIZE - 12)
    return foreign(world, b"PAR1" + deep + len(deep).to_bytes(4, "little") + b"PAR1")


def noise(world: World) -> Dossier:
    data = np.random.default_rng(2).bytes(SIZE)
    return foreign(world, b"PAR1" + data + (1 << 16).to_bytes(4, "little") + b"PAR1")


R = RejectReason
LARGE_FILES = (
    LargeFile("full rows, a false reward at the end", false_at_the_end, R.REWARD_MISMATCH),
    LargeFile(
        "incompressible tokens past the vocabulary",
        lambda w: foreign(w, with_column(w, "output_tokens", random_tokens(NUM_VALUES - 10**5))),
        R.SCHEMA_INVALID,
    ),
    LargeFile("2^31 claimed rows", claimed_rows, R.SCHEMA_INVALID),
    LargeFile("one row of 24 million tokens", one_long_row, R.SCHEMA_INVALID),
    LargeFile("proofs of 100 MB", long_proofs, R.FILE_MISMATCH),
    LargeFile("a text of 100 MB", long_text, R.SCHEMA_INVALID),
    LargeFile("rows without tokens", many_short_lists, R.SCHEMA_INVALID),
    LargeFile("4 GB of zeros in a few kilobytes", bomb(256, None), R.SCHEMA_INVALID),
    LargeFile("2 GB of zeros that claim to be 1 MB", bomb(128, 1 << 20), R.SCHEMA_INVALID),
    LargeFile("a page that claims 2 GB", bomb(1, 2**31 - 1), R.SCHEMA_INVALID),
    LargeFile("a page header of 100 million items", page_header_of_flags, R.SCHEMA_INVALID),
    LargeFile("a footer of 100 MB of nested lists", footer_of_lists, R.SCHEMA_INVALID),
    LargeFile("noise", noise, R.SCHEMA_INVALID),
)
