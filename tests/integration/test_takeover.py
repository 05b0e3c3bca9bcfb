"""A coordinator that stops for good: validators anchor the log that they hold, and everybody is paid from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.api import EarningsStatement
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.clock import SystemClock
from protocol.errors import NotEligible, NotFound, VerificationFailed
from protocol.merkle.history import root_of
from protocol.signing import Signer
from protocol.wire import ZERO_HASH, EpochAttestation, Signed
from tests.integration.conftest import PRICE_WEI, World
from verifier.audit.court.takeover import Committer
from verifier.history import History
from verifier.store import open_store
from verifier.takeover import (
    AttestedEarnings,
    AttestedEpoch,
    attest_earnings,
    attest_epoch,
    check_silent,
    follow,
    refuse_entries,
)

SILENCE = 601
WINDOWS = 1000


class Mirror:
    """A validator's log, as its verifier has checked it while the coordinator was there."""

    def __init__(self, world: World, signer: Signer, folder: Path) -> None:
        self.signer = signer
        self.pool = ChainPool(world.contracts, world.pool_id)
        self.history = History(open_store(folder))

    def follow(self, world: World) -> None:
        follow(self.history, self.pool, world.client().entries)

    def go_on(self) -> None:
        """Take over what seats committed, with nobody to ask."""
        follow(self.history, self.pool, refuse_entries)

    def epoch(self) -> AttestedEpoch:
        return attest_epoch(self.history, self.pool, self.signer)

    def earnings(self) -> AttestedEarnings:
        self.go_on()
        return attest_earnings(self.history, self.pool, self.signer)


def mirrors(world: World, folder: Path) -> list[Mirror]:
    found = [Mirror(world, signer, folder / signer.address) for signer in world.validators]
    for mirror in found:
        mirror.follow(world)
    return found


def committer(world: World) -> Committer:
    """Somebody who has nothing to do with the pool."""
    return Committer(world.contracts, world.pool_id, Lane(world.contracts.client, world.chain.creator, SystemClock()))


def stop_for_good(world: World, folder: Path) -> list[Mirror]:
    """Paid work in the log, of which nothing is committed as earnings; then silence. What validators hold of it."""
    world.accept()
    for _ in range(2):
        world.close_epoch()
    found = mirrors(world, folder)
    world.chain.pass_time(SILENCE)
    world.chain.mine(3)
    return found


def take_over(world: World, found: Sequence[Mirror]) -> list[AttestedEarnings]:
    """The next epoch by seats, and what they say was earned."""
    committer(world).commit_epoch([mirror.epoch() for mirror in found])
    world.chain.mine(3)
    return [mirror.earnings() for mirror in found]


def test_what_was_earned_is_paid_without_the_coordinator(world: World, tmp_path: Path) -> None:
    found = stop_for_good(world, tmp_path)
    last_epoch, last_size = found[0].history.num_epochs, found[0].history.size
    documents = take_over(world, found)
    head = world.read("ledger", "epochOf", world.pool_id, last_epoch)
    assert (head["size"], head["root"]) == (last_size + 1, root_of(found[0].history, last_size + 1))
    committer(world).commit_earnings(documents)
    world.chain.pass_time(WINDOWS)
    account = world.provider.address
    before = world.read("credits", "balanceOf", account)
    said = documents[0].model_dump(exclude={"kind", "attestations"})
    by_a_coordinator = EarningsStatement.model_validate(said).model_dump_json()
    paid = committer(world).claim(AttestedEarnings.model_validate_json(by_a_coordinator), account)
    assert paid == documents[0].earned_wei()[account] > 0
    assert paid % PRICE_WEI == 0
    assert world.read("credits", "balanceOf", account) == before + paid


def test_a_second_epoch_follows_at_once_and_nothing_new_is_earned(world: World, tmp_path: Path) -> None:
    found = stop_for_good(world, tmp_path)
    committer(world).commit_earnings(take_over(world, found))
    for mirror in found:
        mirror.go_on()
    committer(world).commit_epoch([mirror.epoch() for mirror in found])
    assert world.read("ledger", "epochCount", world.pool_id) == found[0].history.num_epochs + 1
    for mirror in found:
        mirror.go_on()
    again = found[0].earnings()
    assert again.attestations == () and again.epoch == found[0].history.num_epochs - 2
    with pytest.raises(NotEligible, match="too few of the drawn seats signed"):
        committer(world).commit_earnings([again])
    world.chain.pass_time(WINDOWS)
    account = world.provider.address
    assert committer(world).claim(again, account) == again.earned_wei()[account] > 0
    with pytest.raises(NotEligible, match="nothing to claim"):
        committer(world).claim(again, account)


def test_where_nothing_was_ever_earned_there_is_no_file(world: World, tmp_path: Path) -> None:
    world.close_epoch()
    found = mirrors(world, tmp_path)
    with pytest.raises(NotEligible, match="nothing is earned"):
        found[0].earnings()


def test_nobody_takes_over_from_a_coordinator_that_isnt_silent(world: World, tmp_path: Path) -> None:
    world.close_epoch()
    found = mirrors(world, tmp_path)
    with pytest.raises(NotEligible, match="isn't silent") as refusal:
        check_silent(world.contracts, world.pool_id)
    assert refusal.value.todo.startswith("wait")
    with pytest.raises(NotEligible, match="isn't silent"):
        committer(world).commit_epoch([mirror.epoch() for mirror in found])


def test_too_few_of_the_drawn_seats_are_told_who_is_missing(world: World, tmp_path: Path) -> None:
    found = stop_for_good(world, tmp_path)
    with pytest.raises(NotEligible, match="too few") as refusal:
        committer(world).commit_epoch([found[0].epoch()])
    assert found[1].signer.address in refusal.value.why and found[0].signer.address not in refusal.value.why
    committer(world).commit_epoch([mirror.epoch() for mirror in found[:2]])


def test_a_validator_that_holds_less_signs_nothing_and_others_files_do_not_mix(world: World, tmp_path: Path) -> None:
    world.close_epoch()
    (behind, *_) = mirrors(world, tmp_path / "behind")
    found = stop_for_good(world, tmp_path)
    with pytest.raises(VerificationFailed, match="isn't here"):
        behind.go_on()
    with pytest.raises(NotEligible, match="doesn't hold the whole log"):
        behind.epoch()
    honest = found[0].epoch()
    other = honest.model_copy(update={"root": ZERO_HASH})
    with pytest.raises(VerificationFailed, match="don't agree"):
        committer(world).commit_epoch([honest, other])
    with pytest.raises(VerificationFailed, match="isn't for what its file says"):
        committer(world).commit_epoch([other])
    message = honest.attestations[0].message
    forged = Signed[EpochAttestation].by(world.trainer, message, world.domain)
    with pytest.raises(VerificationFailed, match="isn't by its seat's validator"):
        committer(world).commit_epoch([honest.model_copy(update={"attestations": (forged,)})])
    with pytest.raises(NotEligible, match="holds no seat"):
        attest_epoch(found[0].history, found[0].pool, world.trainer)


def test_earnings_that_were_changed_are_neither_committed_nor_claimed(world: World, tmp_path: Path) -> None:
    found = stop_for_good(world, tmp_path)
    documents = take_over(world, found)
    rows = [row.model_copy(update={"cumulative_wei": row.cumulative_wei + 1}) for row in documents[0].accounts]
    changed = documents[0].model_copy(update={"accounts": tuple(rows)})
    with pytest.raises(VerificationFailed, match="aren't those of the root"):
        committer(world).commit_earnings([changed])
    committer(world).commit_earnings(documents)
    with pytest.raises(NotEligible, match="can't be claimed yet") as refusal:
        committer(world).claim(documents[0], world.provider.address)
    assert refusal.value.todo.startswith("wait ")
    later = documents[0].model_copy(update={"epoch": documents[0].epoch + 1})
    with pytest.raises(NotEligible, match="no earnings of this epoch are on chain"):
        committer(world).claim(later, world.provider.address)
    with pytest.raises(NotFound, match="no earnings"):
        committer(world).claim(documents[0], world.trainer.address)
    with pytest.raises(VerificationFailed, match="aren't those of the root"):
        committer(world).claim(changed, world.provider.address)


def test_the_documents_survive_being_handed_around_as_files(world: World, tmp_path: Path) -> None:
    found = stop_for_good(world, tmp_path)
    document = found[0].epoch()
    assert AttestedEpoch.model_validate_json(document.model_dump_json()) == document
    assert json.loads(document.model_dump_json())["kind"] == "attested-epoch"
