"""Who watches a log finds what was changed in it, tells each thing once, and forgets nothing in a crash."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from protocol.api import LogEntry
from protocol.chain.block import Block
from protocol.errors import ConfigError, NotEligible, NotFound, Rejected, Unreachable, VerificationFailed
from protocol.events import LogEvent
from protocol.merkle.checkpoint import sign_checkpoint
from protocol.merkle.note import NoteSigner
from protocol.progress import Progress
from protocol.reasons import RejectReason
from verifier.audit.step import StillOpen
from verifier.audit.watch.alerts import Alert
from verifier.audit.watch.commands import _look_once
from verifier.audit.watch.samples import Samples
from verifier.audit.watch.watch import Watch, stay_with_pool
from verifier.store import open_store

SUBMISSION, NODE, VALIDATOR = "0x" + "5b" * 32, "0x" + "a1" * 20, "0x" + "b0" * 20
SIGNER = NoteSigner("log", bytes(range(32)))


def block_hash(number: int, fork: str) -> str:
    return "0x" + fork * 56 + f"{number:08}"


@dataclass
class Node:
    """A node of the chain: of each block the branch and the time; what it says of copies, by block."""

    blocks: dict[int, tuple[str, int]] = field(default_factory=dict)
    answers: dict[int, Exception] = field(default_factory=dict)

    def block(self, number: int) -> Block | None:
        if number not in self.blocks:
            return None
        fork, time = self.blocks[number]
        return Block(number, block_hash(number, fork), block_hash(number - 1, fork), time, 0, gas_limit=0)

    def check(self, copy: LogEvent) -> None:
        if copy.block in self.answers:
            raise self.answers[copy.block]


@dataclass
class Served:
    """A coordinator that answers from a log, and has signed its newest anchored head."""

    log: Any
    chain: Any
    note: str | None = None
    refusals: dict[str, Exception] = field(default_factory=dict)
    """By what was asked for."""
    node: Node = field(default_factory=lambda: Node())

    def entries(self, start: int, limit: int) -> list[LogEntry]:
        if "entries" in self.refusals:
            raise self.refusals["entries"]
        return self.log.read(start, limit)  # type: ignore[no-any-return]

    def checkpoint(self) -> str:
        if "checkpoint" in self.refusals:
            raise self.refusals["checkpoint"]
        if self.note is not None:
            return self.note
        if not self.chain.head_list:
            raise NotFound("no checkpoint is signed yet")
        head = self.chain.head_list[-1]
        return sign_checkpoint(SIGNER, head.size, head.root)


@pytest.fixture
def served(log: Any, chain: Any) -> Served:
    """Two epochs: work that came in, and what became of it."""
    log.append("submission.received", SUBMISSION, time=110, node=NODE, num_units=5, provider=NODE)
    close(log, chain, time=120)
    log.append("submission.rejected", SUBMISSION, time=130, node=NODE, reason="toploc_mismatch", num_units=5)
    close(log, chain, time=140)
    return Served(log, chain)


def close(log: Any, chain: Any, time: int) -> None:
    """An epoch's own leaf, and its head on chain two seconds later."""
    log.append("epoch.closed", time=time, epoch=len(chain.head_list))
    log.anchor(chain)
    chain.head_list[-1] = replace(chain.head_list[-1], time=time + 2)


@pytest.fixture
def watching(store: sqlite3.Connection) -> Callable[..., Watch]:
    """A watch as each start of the process makes it, on one memory."""

    def make(served: Served, nodes: tuple[str, ...] = (), key: Any = SIGNER.key) -> Watch:
        return Watch(store, served, served.chain, key=key, nodes=nodes, open_events=lambda: served.node)  # type: ignore[arg-type]

    return make


def kinds(alerts: list[Alert]) -> list[str]:
    return [alert.kind for alert in alerts]


def test_an_honest_log_is_followed_in_silence(served: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(served)
    assert list(watch.turn()) == []
    close(served.log, served.chain, time=150)
    assert list(watch.turn()) == []
    progress = watch.progress
    assert (progress.epochs, progress.size, progress.checkpoint_size) == (3, 5, 5)
    assert progress.num_again == 4 and progress.num_faults == 0
    assert progress.line().startswith("✓") and "fault" not in progress.line()


def test_how_far_a_look_is_is_shown_epoch_by_epoch(served: Served, store: sqlite3.Connection) -> None:
    stream, asked = io.StringIO(), []

    def shown(num_epochs: int) -> Progress:
        asked.append(num_epochs)
        return Progress("new epochs", num_epochs, stream=stream)

    watch = Watch(store, served, served.chain, key=SIGNER.key, shown=shown, open_events=lambda: served.node)  # type: ignore[arg-type]
    assert list(watch.turn()) == [] and list(watch.turn()) == []
    assert asked == [2, 0] and "new epochs: 2 of 2 done" in stream.getvalue()


def test_a_watch_goes_on_where_it_stopped(served: Served, watching: Callable[..., Watch]) -> None:
    list(watching(served).turn())
    close(served.log, served.chain, time=150)
    again = watching(served)
    assert list(again.turn(0)) == [] and again.progress.size == 5


def test_an_event_that_is_rewritten_before_it_is_seen_stops_the_watch(
    served: Served, watching: Callable[..., Watch]
) -> None:
    watch, entry = watching(served), served.log.entries[2]
    served.log.entries[2] = entry.model_copy(update={"event": entry.event | {"time": 131}})
    assert kinds(list(watch.turn())) == ["inconsistent"]
    assert watch.progress.epochs == 1  # what holds is taken over, and nothing past it
    assert list(watch.turn()) == []  # told once
    assert watch.progress.line().startswith("✗") and "1 faults so far" in watch.progress.line()
    served.log.entries[2] = entry
    assert list(watch.turn()) == [] and watch.progress.epochs == 2


@pytest.mark.parametrize("lie", ["rewritten", "dropped", "reordered", "time"])
def test_an_event_that_is_changed_after_it_was_seen_is_found(
    served: Served, watching: Callable[..., Watch], lie: str
) -> None:
    watch, entries = watching(served), served.log.entries
    assert list(watch.turn()) == []
    if lie == "dropped":
        del entries[0]
    elif lie == "reordered":
        entries[0], entries[1] = entries[1], entries[0]
    else:
        changes: dict[str, Any] = {"time": 1} if lie == "time" else {"data": {"node": VALIDATOR}}
        entries[0] = type(served.log)().append(
            "submission.received", SUBMISSION, **({"time": 110} | {"node": NODE} | changes)
        )
    found = list(watch.turn())
    assert "rewritten" in kinds(found) and all(alert.is_fault for alert in found)
    assert found[0].log_index == 0 and watch.progress.num_faults >= 1


def test_a_log_that_ends_early_now_is_found(served: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(served)
    assert list(watch.turn()) == []
    del served.log.entries[2:]
    assert kinds(list(watch.turn())) == ["rewritten", "inconsistent"]


def test_an_event_from_before_the_one_before_it_is_back_dated(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    log.append("submission.received", "0x" + "6c" * 32, time=125, node=NODE, num_units=5, provider=NODE)
    close(log, chain, time=150)
    (alert,) = watching(served).turn()
    assert (alert.kind, alert.is_fault, alert.log_index) == ("back_dated", True, 4)
    assert "125" in alert.detail and "140" in alert.detail


def test_an_event_from_after_its_epoch_was_on_chain_is_post_dated(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    close(log, chain, time=150)
    chain.head_list[-1] = replace(chain.head_list[-1], time=149)
    (alert,) = watching(served).turn()
    assert (alert.kind, alert.epoch) == ("post_dated", 2)


def copy_block(
    log: Any, number: int, time: int, kind: str = "EpochCommitted", fork: str = "a", **arguments: str
) -> None:
    """The log's copy of an event in a block of that branch of the chain."""
    data = {"block": number, "block_hash": block_hash(number, fork), "log_index": 0, "arguments": arguments}
    log.append(f"chain.{kind}", SUBMISSION, time=time, **data)


@pytest.fixture
def forked(log: Any, chain: Any, served: Served) -> Served:
    """Blocks 45 to 48 were copied; the chain went on without 47 and 48, and the log says so and goes back in time."""
    for number in range(45, 49):
        copy_block(log, number, time=100 + number)
    log.append("chain.reorged", time=148, fork_block=46)
    close(log, chain, time=147)
    copy_block(log, 47, time=147, fork="b")
    copy_block(log, 49, time=149, fork="b")
    close(log, chain, time=150)
    served.node.blocks |= {number: ("a" if number <= 46 else "b", 100 + number) for number in range(40, 60)}
    return served


def test_time_goes_back_where_the_chain_did(forked: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(forked)
    assert [(alert.kind, alert.is_fault) for alert in watch.turn()] == [("reorg", False)]
    copy_block(forked.log, 50, time=148, fork="b")
    close(forked.log, forked.chain, time=151)
    assert kinds(list(watch.turn())) == ["back_dated"]  # the reorg let it go back once


def test_blocks_that_the_chain_has_still_were_not_dropped(forked: Served, watching: Callable[..., Watch]) -> None:
    forked.node.blocks |= {47: ("a", 147), 48: ("a", 148)}
    found = list(watching(forked).turn())
    assert [(alert.kind, alert.is_fault) for alert in found] == [("reorg", False), ("reorg", True)]
    assert "dropped block 47, which it has" in found[1].detail


def test_blocks_that_came_back_are_copied_again(forked: Served, watching: Callable[..., Watch]) -> None:
    forked.node.blocks |= {47: ("a", 147), 48: ("a", 148)}
    copy_block(forked.log, 47, time=151)
    copy_block(forked.log, 48, time=151)
    close(forked.log, forked.chain, time=152)
    assert [(alert.kind, alert.is_fault) for alert in watching(forked).turn()] == [("reorg", False)]


@pytest.mark.parametrize(("made_at", "found"), [(147, ["reorg"]), (148, ["reorg", "back_dated"])])
def test_a_reorg_takes_time_back_to_the_last_block_that_is_left(
    forked: Served, watching: Callable[..., Watch], made_at: int, found: list[str]
) -> None:
    forked.node.blocks[46] = ("a", made_at)
    assert kinds(list(watching(forked).turn())) == found


def test_a_reorg_is_held_against_the_chain_once_the_node_is_as_far(
    forked: Served, watching: Callable[..., Watch]
) -> None:
    blocks = forked.node.blocks
    forked.node.blocks = {}
    watch = watching(forked)
    assert kinds(list(watch.turn())) == ["reorg"]
    forked.node.blocks = blocks | {47: ("a", 147)}
    assert [alert.is_fault for alert in watch.turn()] == [True]
    assert list(watch.turn()) == []


def test_a_deeper_reorg_leaves_an_earlier_block(forked: Served, watching: Callable[..., Watch]) -> None:
    forked.log.append("chain.reorged", time=150, fork_block=44)
    copy_block(forked.log, 45, time=146, fork="c")
    copy_block(forked.log, 51, time=151, fork="c")
    close(forked.log, forked.chain, time=152)
    forked.node.blocks |= {44: ("a", 144)} | dict.fromkeys(range(45, 60), ("c", 200))
    assert not any(alert.is_fault for alert in watching(forked).turn())


def test_a_case_that_the_chain_doesnt_have_is_a_fault(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    copy_block(log, 50, time=150, kind="Slashed", provider=NODE)
    copy_block(log, 51, time=151, kind="CaseUpheld")
    copy_block(log, 52, time=152, kind="Accused")
    close(log, chain, time=153)
    served.node.answers = {50: VerificationFailed("the chain has no such event"), 52: StillOpen("no block 52 yet")}
    watch = watching(served)
    found = list(watch.turn())
    assert [alert.kind for alert in found] == ["case", "case", "case", "copy"]
    assert found[-1].is_fault and "chain.Slashed" in found[-1].detail and "no such event" in found[-1].detail
    served.node.answers = {}
    assert list(watch.turn()) == []


def test_a_crash_before_a_false_claim_is_noted_forgets_none(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    copy_block(log, 50, time=150, kind="Slashed", provider=NODE)
    close(log, chain, time=153)
    served.node.answers = {50: VerificationFailed("the chain has no such event")}
    watch = watching(served)
    watch.history.follow(chain.head_list, log.read)
    killed = watch.claims.false_ones()
    claim = next(killed)
    killed.close()
    assert list(watching(served).claims.false_ones()) == [claim]
    assert list(watching(served).claims.false_ones()) == []


def test_seats_that_contradict_each_other_are_news(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    log.append("stamp.disputed", SUBMISSION, time=145, validator=VALIDATOR, by_seat=2, largest_difference=1.5)
    log.append("reaudit.disagreed", SUBMISSION, time=146, num_units=5, accepted=True)
    close(log, chain, time=150)
    found = list(watching(served).turn())
    assert kinds(found) == ["verifiers", "verifiers"] and not any(alert.is_fault for alert in found)
    assert VALIDATOR in found[0].detail


def test_what_happens_to_a_named_node_is_told_with_its_reason(served: Served, watching: Callable[..., Watch]) -> None:
    received, rejected = watching(served, nodes=(NODE,)).turn()
    assert (received.kind, rejected.kind) == ("node", "node")
    assert "submission.rejected" in rejected.detail and "toploc_mismatch" in rejected.detail
    assert rejected.subject == SUBMISSION


def test_what_an_event_has_none_of_is_not_told(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    log.append("submission.received", "0x" + "5c" * 32, time=145, node=NODE, num_units=5, reason=None)
    close(log, chain, time=150)
    *_, accepted = watching(served, nodes=(NODE,)).turn()
    assert accepted.detail == f"submission.received, node {NODE}"


def test_other_nodes_are_not(served: Served, watching: Callable[..., Watch]) -> None:
    assert list(watching(served, nodes=(VALIDATOR,)).turn()) == []


def test_what_the_court_does_is_news(log: Any, chain: Any, served: Served, watching: Callable[..., Watch]) -> None:
    log.append("chain.CaseUpheld", SUBMISSION, time=141, arguments={"reason": "64", "node": NODE}, contract="court")
    log.append("chain.Accused", SUBMISSION, time=142, arguments={"reason": "199", "node": NODE}, contract="court")
    close(log, chain, time=150)
    alert, unknown = watching(served).turn()
    assert alert.kind == "case" and "chain.CaseUpheld, reason proof_malformed" in alert.detail
    assert "chain.Accused, reason 199" in unknown.detail


def test_a_payment_that_nothing_earns_is_a_fault(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    log.append("submission.accepted", "0x" + "6c" * 32, time=141, num_units=5, payments=[[NODE, "7"]])
    close(log, chain, time=150)
    found = list(watching(served).turn())
    assert "unearned" in kinds(found) and found[-1].is_fault


def test_a_checkpoint_of_another_root_is_a_fault_and_stays(served: Served, watching: Callable[..., Watch]) -> None:
    served.note = sign_checkpoint(SIGNER, 4, "0x" + "77" * 32)
    watch = watching(served)
    (alert,) = watch.turn()
    assert alert.kind == "rewritten" and alert.is_fault and "0x" + "77" * 32 in alert.detail


def test_two_checkpoints_of_one_size_are_a_fault(served: Served, watching: Callable[..., Watch]) -> None:
    """Also where the leaves that would tell which is true haven't come yet."""
    watch = watching(served)
    served.note = sign_checkpoint(SIGNER, 9, "0x" + "77" * 32)
    assert list(watch.turn()) == []
    served.note = sign_checkpoint(SIGNER, 9, "0x" + "78" * 32)
    assert kinds(list(watch.turn())) == ["rewritten"]


def test_a_checkpoint_of_another_key_is_a_fault(served: Served, watching: Callable[..., Watch]) -> None:
    served.note = sign_checkpoint(NoteSigner("log", bytes(32)), 4, served.log.tree.root)
    assert kinds(list(watching(served).turn())) == ["inconsistent"]


def test_a_checkpoint_that_somebody_kept_is_held_against_the_log(
    served: Served, watching: Callable[..., Watch]
) -> None:
    watch, kept = watching(served), sign_checkpoint(SIGNER, 2, served.chain.head_list[0].root)
    watch.remember(kept, "kept.note")
    assert list(watch.turn()) == []
    other = watching(served)
    other.remember(sign_checkpoint(SIGNER, 2, "0x" + "77" * 32), "other.note")
    (alert, *_) = other.turn()
    assert alert.kind == "rewritten" and "other.note" in alert.detail


def test_a_pool_without_a_key_is_watched_by_its_heads(served: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(served, key=None)
    assert list(watch.turn()) == [] and watch.progress.size == 4
    with pytest.raises(VerificationFailed, match="no key"):
        watch.remember(sign_checkpoint(SIGNER, 2, "0x" + "77" * 32), "kept.note")


def test_another_branch_of_the_chain_is_found(served: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(served)
    assert list(watch.turn()) == []
    served.chain.head_list[1] = replace(served.chain.head_list[1], root="0x" + "77" * 32)
    served.note = sign_checkpoint(SIGNER, 2, served.chain.head_list[0].root)
    assert kinds(list(watch.turn())) == ["inconsistent"]


def test_a_node_of_the_chain_that_goes_back_is_said_to_be_behind(
    served: Served, watching: Callable[..., Watch]
) -> None:
    watch = watching(served)
    assert list(watch.turn()) == []
    head = served.chain.head_list.pop()
    with pytest.raises(Unreachable, match="behind what was seen"):
        list(watch.turn())
    served.chain.head_list.append(head)
    assert list(watch.turn()) == [] and watch.progress.num_faults == 0


def test_what_a_crash_kept_from_being_told_is_told_at_the_next_start(
    served: Served, watching: Callable[..., Watch]
) -> None:
    turn = watching(served, nodes=(NODE,)).turn()
    first = next(turn)  # and the process ends
    turn.close()
    again = list(watching(served, nodes=(NODE,)).turn())
    assert again[0] == first and len(again) == 2
    assert list(watching(served, nodes=(NODE,)).turn()) == []


# a coordinator that lies, and knows that it is watched


@pytest.mark.parametrize("value", [[], {}, [NODE], None, 7])
@pytest.mark.parametrize("nodes", [(), (NODE,)])
def test_leaves_of_any_shape_do_not_end_the_watch(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch], value: Any, nodes: tuple[str, ...]
) -> None:
    log.append("submission.rejected", SUBMISSION, time=141, node=value, arguments=value, num_units=5)
    log.append("chain.Accused", SUBMISSION, time=142, arguments={"node": value})
    log.append("chain.Accused", SUBMISSION, time=143, arguments=value)
    log.append(value, SUBMISSION, time=144)
    close(log, chain, time=150)
    watch = watching(served, nodes=nodes)
    unreadable = [alert for alert in watch.turn() if alert.kind == "unreadable"]
    assert watch.progress.epochs == 3
    assert [alert.log_index for alert in unreadable] == [7] and unreadable[0].is_fault


def test_nothing_that_is_logged_steers_a_terminal_or_fakes_a_line(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    log.append("x\x1b[2J\n✓ all is well" + "y" * 9_000, SUBMISSION, time=141, node=NODE, reason="\x1b]0;\u009b\n✓")
    close(log, chain, time=150)
    *_, alert = watching(served, nodes=(NODE,)).turn()
    assert alert.line().isprintable() and len(alert.line()) < 1_000 and "?[2J?✓ all is well" in alert.line()


def test_what_is_told_of_a_leaf_is_bounded_however_long_it_is(served: Served, watching: Callable[..., Watch]) -> None:
    watch, entry = watching(served), served.log.entries[2]
    served.log.entries[2] = entry.model_copy(update={"event": entry.event | {"subject": "x" * 1_000_000}})
    (alert,) = watch.turn()
    assert alert.kind == "inconsistent" and len(alert.detail) == 1_000


def test_a_refusal_of_one_thing_hides_no_fault_in_another(served: Served, watching: Callable[..., Watch]) -> None:
    watch, entry = watching(served), served.log.entries[2]
    served.log.entries[2] = entry.model_copy(update={"event": entry.event | {"time": 131}})
    served.refusals["checkpoint"] = Unreachable("an answer that can't be used")
    turn = watch.turn()
    assert next(turn).kind == "inconsistent"
    with pytest.raises(Unreachable, match="can't be used"):
        next(turn)
    assert _look_once(watch, as_json=True) == 3  # a fault outweighs what couldn't be looked at


def test_an_outage_alone_is_no_fault(served: Served, watching: Callable[..., Watch]) -> None:
    watch = watching(served)
    served.refusals["entries"] = Unreachable("no answer")
    with pytest.raises(Unreachable):
        _look_once(watch, as_json=True)
    assert watch.progress.num_faults == 0
    served.refusals.clear()
    assert _look_once(watch, as_json=True) == 0


@pytest.mark.parametrize("refusal", [NotFound("no log"), Rejected(RejectReason.TOPLOC_MISMATCH)])
def test_a_coordinator_that_refuses_its_log_is_asked_again(
    served: Served, watching: Callable[..., Watch], refusal: Exception
) -> None:
    watch = watching(served)
    served.refusals["entries"] = refusal
    with pytest.raises(Unreachable, match="refuses to show"):
        list(watch.turn())
    served.refusals.clear()
    assert list(watch.turn()) == [] and watch.progress.epochs == 2


def test_each_payment_for_nothing_is_told_however_many_came_before(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch], store: sqlite3.Connection
) -> None:
    for number in range(12):
        log.append("submission.accepted", f"0x{number:064x}", time=141, num_units=5, payments=[[NODE, "7"]])
    close(log, chain, time=150)
    watch = watching(served)
    assert kinds(list(watch.turn())) == ["unearned"] * 12
    log.append("submission.accepted", "0x" + "6c" * 32, time=151, num_units=5, payments=[[NODE, "700"]])
    close(log, chain, time=160)
    (alert,) = watch.turn()
    assert (alert.kind, alert.epoch, alert.log_index) == ("unearned", 3, 17)
    store.execute("DELETE FROM alert WHERE number = ?", (alert.number,))  # as if killed before it was noted
    assert kinds(list(watching(served).turn())) == ["unearned"]


def test_signed_checkpoints_past_the_log_hide_none_that_contradicts_it(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    watch, past = watching(served), 10_000
    served.note = sign_checkpoint(SIGNER, 5, "0x" + "77" * 32)
    assert list(watch.turn()) == []
    for size in range(past, past + 20):
        served.note = sign_checkpoint(SIGNER, size, "0x" + "77" * 32)
        assert list(watch.turn()) == []
    close(log, chain, time=150)  # five leaves
    assert [alert.detail[:34] for alert in watch.turn()] == ["a signed checkpoint of 5 leaves ha"]
    served.note = sign_checkpoint(SIGNER, 2, "0x" + "77" * 32)
    assert kinds(list(watch.turn())) == ["rewritten"]


def test_both_of_two_checkpoints_stay_as_evidence(
    served: Served, watching: Callable[..., Watch], store: sqlite3.Connection
) -> None:
    watch = watching(served)
    assert list(watch.turn()) == []
    served.note = sign_checkpoint(SIGNER, 4, "0x" + "77" * 32)
    assert set(kinds(list(watch.turn()))) == {"rewritten"}
    assert store.execute("SELECT note FROM other_checkpoint").fetchall() == [(served.note,)]
    (honest,) = store.execute("SELECT note FROM checkpoint WHERE size = 4").fetchone()
    assert honest == sign_checkpoint(SIGNER, 4, served.log.tree.root)


def test_what_the_chain_says_of_a_named_node_is_told(
    log: Any, chain: Any, served: Served, watching: Callable[..., Watch]
) -> None:
    for node in (NODE, VALIDATOR):
        log.append("chain.NodeRemoved", "0x" + "00" * 32, time=141, block=3, arguments={"node": node})
    close(log, chain, time=150)
    found = [alert for alert in watching(served, nodes=(NODE,)).turn() if alert.log_index in (4, 5)]
    assert [(alert.kind, alert.log_index) for alert in found] == [("node", 4)]


# judging again


class Judge:
    """This machine's judgement of submissions: what it says against each verdict, or why it can't."""

    def __init__(self, says: list[str] | Exception) -> None:
        self.says = says
        self.asked: list[str] = []

    def __call__(self, submission_id: str) -> list[str]:
        self.asked.append(submission_id)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def judging(store: sqlite3.Connection) -> Callable[..., Watch]:
    def make(served: Served, judge: Judge, share: float = 1.0) -> Watch:
        return Watch(store, served, served.chain, key=None, replay=judge, share=share, open_events=lambda: served.node)  # type: ignore[arg-type]

    return make


def test_settled_work_is_judged_again_once(served: Served, judging: Callable[..., Watch]) -> None:
    judge = Judge([])
    watch = judging(served, judge)
    assert list(watch.turn()) == [] and list(watch.turn()) == []
    assert judge.asked == [SUBMISSION] and watch.progress.num_replayed == 1


def test_a_verdict_that_does_not_hold_here_is_a_fault_with_its_validator(
    served: Served, judging: Callable[..., Watch]
) -> None:
    (alert,) = judging(served, Judge([f"{VALIDATOR}: said accept, here it is slash"])).turn()
    assert (alert.kind, alert.is_fault, alert.subject) == ("replay", True, SUBMISSION)
    assert VALIDATOR in alert.detail


def test_evidence_that_does_not_hold_is_a_fault_too(served: Served, judging: Callable[..., Watch]) -> None:
    (alert,) = judging(served, Judge(VerificationFailed("the evidence itself doesn't hold", "digest"))).turn()
    assert alert.is_fault and "digest" in alert.detail


@pytest.mark.parametrize(
    "refusal",
    [Unreachable("no server has the weights"), Rejected(RejectReason.TOPLOC_MISMATCH), NotEligible("another version")],
)
def test_weights_that_nobody_has_are_tried_thrice_and_then_said(
    served: Served, judging: Callable[..., Watch], refusal: Exception
) -> None:
    judge = Judge(refusal)
    watch = judging(served, judge)
    assert [list(watch.turn()) for _ in range(2)] == [[], []]
    (alert,) = watch.turn()
    assert not alert.is_fault and "can't be judged again" in alert.detail
    assert list(watch.turn()) == [] and len(judge.asked) == 3


def test_nothing_is_judged_where_no_share_is_wanted(served: Served, judging: Callable[..., Watch]) -> None:
    judge = Judge([])
    assert list(judging(served, judge, share=0.0).turn()) == [] and judge.asked == []


def test_the_share_is_what_was_asked_for_and_each_auditor_draws_his_own(store: sqlite3.Connection) -> None:
    ids = [f"0x{number:064x}" for number in range(2_000)]
    mine, theirs = Samples(store, 0.25), Samples(sqlite3.connect(":memory:", isolation_level=None), 0.25)
    picked = [one for one in ids if mine.is_picked(one)]
    assert 400 <= len(picked) <= 600
    assert picked == [one for one in ids if Samples(store, 0.25).is_picked(one)]
    assert picked != [one for one in ids if theirs.is_picked(one)]


def test_a_memory_is_of_one_pool(tmp_path: Path) -> None:
    db = open_store(tmp_path)
    stay_with_pool(db, 1)
    stay_with_pool(db, 1)
    with pytest.raises(ConfigError, match="another pool"):
        stay_with_pool(db, 2)
    db.close()
