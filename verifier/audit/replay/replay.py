"""Verdicts run again: the checks on this machine, with the weights that the submission's version is pinned to.

    the bundle holds ─▶ the version's weights ─▶ one run of the model over every rollout, all stamps asked with it
                    ─▶ each verdict beside the same checks of the rollouts that its draw names

In: a `ProofBundle`, the `Ground` that the auditor stands on, where a model is to come from. Out: `Replay`; nothing is
printed and nothing is sent, so whoever watches a log can use a `Replayer`. Raises VerificationFailed where the bundle
itself doesn't hold: then no verdict is to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.bundle import ProofBundle, RevealedVerdict
from protocol.canonical import hex0x
from protocol.checks.audit_rows import Audit
from protocol.checks.case import Case
from protocol.checks.local_check import load_model
from protocol.checks.report import FileReport
from protocol.checks.stages import Examination, narrowed
from protocol.environments.registry import environment_of
from protocol.errors import VerificationFailed
from protocol.progress import Steps, Unseen
from protocol.reasons import Outcome
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.wire import Address, Hash32, UInt64, WeightsRelease
from verifier.audit.bundle.ground import Ground
from verifier.audit.bundle.verdicts import drawing_epoch
from verifier.audit.bundle.verify import as_of, checks_of
from verifier.audit.replay.comparison import ReplayedVerdict, compare
from verifier.audit.replay.pinned import ModelSource
from verifier.audit.replay.twins import FindBundle, is_twin, named_twin
from verifier.audit.step import StepState, take_step
from verifier.case import Dossier, Facts, Instruments
from verifier.pipeline import no_twin, run
from verifier.stamps import Revealed, Stamp, StampSeat, reviews_of, stamps_of

NUM_STEPS = 2
"""Weights, and checks."""

PREMISES = (
    *("deployment", "digest", "lease", "node signature", "log event"),
    *("inclusion", "append-only", "heads", "verdicts", "draws"),
)
"""Steps of `audit verify` that a replay rests on: whose verdicts these are, about which file, under which draw."""

Remedy = Literal["challenge", "appeal"]


class Replay(BaseModel):
    """What the checks say on this machine of one submission, and of each verdict on it.

    `here` is about every rollout, whatever was drawn. `standing` is the log's decision, None before it. `contradicted`:
    validators of verdicts that don't hold, each once. `missed_by_draw`: no verdict is false, and yet what they accepted
    is a forgery, by rollouts that no seat had drawn. `remedy`: what is open to whoever finds the decision wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    submission_id: Hash32
    result: Literal["ok", "failed", "consistent, not anchored"]
    anchor: str
    as_of: str
    policy_version: UInt64
    manifest_hash: Hash32
    standing: Literal["accepted", "rejected"] | None
    here: FileReport
    verdicts: tuple[ReplayedVerdict, ...]
    contradicted: tuple[Address, ...]
    missed_by_draw: bool
    remedy: Remedy | None

    @property
    def exit_code(self) -> int:
        return VerificationFailed.exit_code if self.result == "failed" else 0


class Replayer:
    """Runs verdicts again, one submission after the other: the newest version's model stays in memory between them.

    Example: `Replayer(ModelSource(None, urls)).replay(bundle, chain_ground(bundle, contracts), submission_id)`.
    """

    def __init__(self, source: ModelSource, find: FindBundle | None = None) -> None:
        """`find` gives the bundles of others; without it no duplicate can be confirmed."""
        self._source = source
        self._find = find
        self._loaded: tuple[tuple[str, str], Instruments] | None = None

    def replay(self, bundle: ProofBundle, ground: Ground, submission_id: str, progress: Steps | None = None) -> Replay:
        """Raises VerificationFailed, UsageError for another model, Unreachable for weights that nobody has."""
        progress = progress or Unseen()
        anchor = _checked(bundle, ground, submission_id)
        instruments = self._instruments(bundle.rules, ground, progress)
        progress.step()
        progress.doing("the checks of every rollout")
        seats = [_seat(bundle, ground, one, submission_id) for one in bundle.verdicts]
        dossier = _dossier(bundle, ground)
        found = run(dossier, instruments, partial(_everything, seats))
        twins = {} if self._find is None else _twins(bundle, ground, self._find)
        verdicts = tuple(_replayed(bundle, dossier, found, seats, _as_duplicate(dossier, instruments), twins))
        progress.step()
        report = FileReport.of(found, submission_id, bundle.submission.message.content_hash)
        return _summary(bundle, ground, anchor, report, verdicts)

    def _instruments(self, rules: Rules, ground: Ground, progress: Steps) -> Instruments:
        """Of these rules and this version, which are checked to be the chain's by now."""
        version = ground.facts.version
        wanted = (version.manifest_hash, rules.rules_hash)
        if self._loaded is None or self._loaded[0] != wanted:
            release = WeightsRelease(
                pool_id=ground.facts.pool_id,
                policy_version=version.policy_version,
                manifest_hash=version.manifest_hash,
            )
            self._loaded = None  # two models at once may be more than the machine holds
            self._loaded = wanted, _loaded(rules, self._source.folder(release, progress))
        return self._loaded[1]


def _loaded(rules: Rules, folder: Path) -> Instruments:
    from protocol.weights import ModelConfig  # torch is loaded once there is something to judge

    return Instruments(
        environment=environment_of(rules.environment, Tokenizer.load(folder)),
        model_config=ModelConfig.load(folder),
        load_model=cache(partial(load_model, folder)),
        find_twin=no_twin,
    )


def _checked(bundle: ProofBundle, ground: Ground, submission_id: str) -> str:
    """What the evidence is anchored to, empty for nothing. Raises VerificationFailed where it doesn't hold."""
    checks = checks_of(bundle, ground, submission_id)
    steps = {name: take_step(name, checks[name]) for name in PREMISES}
    for step in steps.values():
        if step.state is StepState.FAILED:
            todo = f"`proofpool audit verify {submission_id}` shows every step; no validator is blamed for this"
            raise VerificationFailed(f"the evidence itself doesn't hold: {step.name}", step.why, todo)
    if bundle.verdicts and steps["draws"].state is not StepState.OK:
        raise VerificationFailed("there are verdicts that no beacon can have drawn", steps["draws"].why)
    return ground.anchor if ground.is_chain or steps["heads"].state is StepState.OK else ""


def _dossier(bundle: ProofBundle, ground: Ground) -> Dossier:
    facts = Facts(
        domain=ground.facts.domain,
        coordinator=ground.facts.coordinator,
        beacon_hash=ground.facts.version.beacon_hash,
        received_time=_received_time(bundle),
        rules_hashes=frozenset({bundle.submission.message.rules_hash}),
    )
    return Dossier(bundle.submission, bundle.task, bundle.file, bundle.rules, facts, bundle.renewal)


def _received_time(bundle: ProofBundle) -> int:
    time = bundle.received.entry.event.get("time")
    if not isinstance(time, int):
        raise VerificationFailed("the log doesn't say when it came in", str(time)[:80])
    return time


def _seat(bundle: ProofBundle, ground: Ground, revealed: RevealedVerdict, submission_id: str) -> StampSeat:
    message = revealed.verdict.message
    epoch = drawing_epoch(bundle, message.round)
    head = None if epoch is None else ground.facts.head(epoch)
    if head is None or head.beacon_hash is None:
        raise VerificationFailed("a verdict was given before its beacon was known", f"seat {message.seat}")
    return StampSeat(head.beacon_hash, submission_id, message.round, message.seat)


def _everything(seats: Sequence[StampSeat], case: Case) -> Audit:
    """Every rollout, and what each seat's stamp answers."""
    return Audit(tuple(range(len(case.rollouts))), tuple(pair for seat in seats for pair in seat.challenge(case)))


def _twins(bundle: ProofBundle, ground: Ground, find: FindBundle) -> dict[str, bool]:
    """Of the submissions that refusals as a duplicate name: whether they are its twins, where that can be told."""
    named = {one for one in map(named_twin, (one.evidence for one in bundle.verdicts)) if one is not None}
    told = {twin_id: is_twin(bundle, twin_id, ground.facts.domain, find) for twin_id in named}
    return {twin_id: answer for twin_id, answer in told.items() if answer is not None}


def _as_duplicate(dossier: Dossier, instruments: Instruments) -> Callable[[str], Examination]:
    """What the checks say to who remembers a twin: the cheap ones alone, up to this one."""
    return lambda twin_id: run(dossier, replace(instruments, find_twin=lambda *_: twin_id))


def _replayed(
    bundle: ProofBundle,
    dossier: Dossier,
    found: Examination,
    seats: Sequence[StampSeat],
    as_duplicate: Callable[[str], Examination],
    twins: Mapping[str, bool],
) -> Iterator[ReplayedVerdict]:
    stamps = stamps_of(found.case, seats)
    pairs = list(zip(bundle.verdicts, seats, strict=True))
    all_revealed = [Revealed(seat, one.verdict.message, one.evidence) for one, seat in pairs]
    for one, revealed, stamp in zip(bundle.verdicts, all_revealed, stamps, strict=True):
        possible = _possible(found, revealed.seat, seats)
        here = next((one for one in possible if one.num_audited == revealed.evidence.num_audited), possible[0])
        exact = [*_false_facts(dossier, possible, revealed), *_false_reviews(revealed, all_revealed, stamps)]
        twin_id = named_twin(revealed.evidence)
        is_recalled = twin_id in twins
        if twin_id is not None and twins.get(twin_id):
            here, stamp = as_duplicate(twin_id), ()
        yield compare(one.validator, revealed, here, exact, stamp, is_recalled=is_recalled)


def _possible(found: Examination, seat: StampSeat, seats: Sequence[StampSeat]) -> tuple[Examination, ...]:
    """What a seat may rightly have looked at, the usual first: what its round and the earlier ones draw, or more.

    A re-audit looks at what round 0 has looked at too, so that it can review those stamps; where nothing of round 0 had
    been revealed to it, at its own draw. What is suspicious is looked at in full.
    """
    if found.case is None:
        return (found,)
    case, earlier = found.case, [one for one in seats if one.round <= seat.round]
    drawn = {number for one in earlier for number in one.rollouts(case)}
    return (narrowed(found, drawn), narrowed(found, seat.rollouts(case)), found)


def _false_facts(dossier: Dossier, possible: Sequence[Examination], revealed: Revealed) -> Iterator[str]:
    """What follows from file and rules alone, and is said otherwise."""
    evidence, found = revealed.evidence, possible[-1]
    facts: dict[str, tuple[object, object]] = {
        "submission": (evidence.submission_id, revealed.seat.submission_id),
        "seed": (evidence.seed, hex0x(dossier.seed)),
        "num_units": (evidence.num_units, found.case.num_units if found.case else 0),
        "num_rollouts": (evidence.num_rollouts, found.num_rollouts),
    }
    yield from (f"{name} {said}, the file has {here}" for name, (said, here) in facts.items() if said != here)
    is_accepted = revealed.verdict.outcome == Outcome.ACCEPT
    if is_accepted and evidence.num_audited not in {one.num_audited for one in possible}:
        yield f"accepted with {evidence.num_audited} rollouts audited, its draw asks for {possible[0].num_audited}"


def _false_reviews(one: Revealed, all_revealed: Sequence[Revealed], stamps: Sequence[Stamp]) -> Iterator[str]:
    """What it says of other seats' stamps, and isn't so."""
    ours = {(r.round, r.seat): r.agrees for r in reviews_of(all_revealed, stamps, None)}
    for said in one.evidence.stamp_reviews:
        agrees = ours.get((said.round, said.seat), said.agrees)
        if agrees != said.agrees:
            holds = "holds" if agrees else "doesn't hold"
            yield f"reviews the stamp of seat {said.seat} in round {said.round} falsely: it {holds}"


def _summary(
    bundle: ProofBundle, ground: Ground, anchor: str, here: FileReport, verdicts: tuple[ReplayedVerdict, ...]
) -> Replay:
    settled = None if bundle.settled is None else bundle.settled.entry.event.get("type")
    accepted = settled == "submission.accepted"
    rejected = settled == "submission.rejected"
    holds = all(verdict.holds for verdict in verdicts)
    missed = holds and here.outcome == "slash" and any(one.outcome == "accept" for one in verdicts)
    good: Literal["ok", "consistent, not anchored"] = "ok" if anchor else "consistent, not anchored"
    return Replay(
        submission_id=bundle.submission.message.id(ground.facts.domain),
        result=good if holds and not missed else "failed",
        anchor=anchor,
        as_of=as_of(bundle),
        policy_version=ground.facts.version.policy_version,
        manifest_hash=ground.facts.version.manifest_hash,
        standing="accepted" if accepted else "rejected" if rejected else None,
        here=here,
        verdicts=verdicts,
        contradicted=tuple(dict.fromkeys(verdict.validator for verdict in verdicts if not verdict.holds)),
        missed_by_draw=missed,
        remedy=_remedy(ground, here, verdicts),
    )


def _remedy(ground: Ground, here: FileReport, verdicts: Sequence[ReplayedVerdict]) -> Remedy | None:
    """A forgery that somebody accepted can be challenged while there is no case; an accusation can be appealed."""
    case = ground.facts.case
    if here.outcome == "slash":
        return "challenge" if case is None and any(one.outcome == "accept" for one in verdicts) else None
    is_accused = any(one.outcome == "slash" for one in verdicts) and (case is None or case.state == "accused")
    return "appeal" if is_accused else None
