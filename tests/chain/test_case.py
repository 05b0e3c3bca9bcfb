"""A forgery's whole way on chain, signed and proven by Python: node, log, verdicts, accusation, slash; and earnings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from protocol.canonical import canonical_json, hex0x
from protocol.chain.cases import Accusation, CaseState, Challenge, Inclusion, Vote, vote_commitment
from protocol.chain.pool import ChainPool
from protocol.draw import drawn_seats, jury_seats
from protocol.errors import TransactionReverted
from protocol.merkle.history import MemoryLog, event_leaf_hash, inclusion_proof
from protocol.merkle.standard import earnings_tree
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from protocol.wire import EarningsAttestation, NodeAuthorization, Submission, Verdict
from testnet.chain.process import NodeProcess
from tests.chain.test_contracts import CONFIG, COORDINATOR, CREDIT, OPERATOR, TRAINER, VALIDATORS, Site, deploy_pool

NODE_KEY = Signer((77).to_bytes(32, "big"))
PROVIDER = TRAINER
"""Any account with gas that holds no seat will do."""


@dataclass(frozen=True)
class Scene:
    site: Site
    log: MemoryLog
    accusation: Accusation
    submission_id: str

    @property
    def pool(self) -> ChainPool:
        return ChainPool(self.site.contracts, 1, lane=self.site.lane(VALIDATORS[0]))

    def as_(self, sender: Signer) -> ChainPool:
        return ChainPool(self.site.contracts, 1, lane=self.site.lane(sender))

    def wait(self, num_seconds: int) -> None:
        rpc = self.site.contracts.client.rpc
        rpc.call("evm_increaseTime", num_seconds)
        rpc.call("evm_mine")


@pytest.fixture(scope="module")
def staged(node: NodeProcess) -> Iterator[Scene]:
    site = deploy_pool(node.url)
    enrol(site)
    yield stage(site)
    site.contracts.client.rpc.close()


@pytest.fixture
def scene(staged: Scene) -> Iterator[Scene]:
    rpc = staged.site.contracts.client.rpc
    snapshot = rpc.call("evm_snapshot")
    yield staged
    rpc.call("evm_revert", snapshot)


def enrol(site: Site) -> None:
    """A provider with one node and 100 credits allotted, and a funded pool."""
    at, contracts = site.contracts.addresses, site.contracts
    for owner in (PROVIDER, OPERATOR):
        site.send(OPERATOR, "credits", "mint", owner.address, 500 * CREDIT)
    site.send(OPERATOR, "credits", "approve", at.pools, 500 * CREDIT)
    site.send(OPERATOR, "pools", "fund", 1, 500 * CREDIT)
    site.send(PROVIDER, "credits", "approve", at.registry, 500 * CREDIT)
    site.send(PROVIDER, "registry", "stake", 100 * CREDIT)
    deadline = contracts.client.head().timestamp + 600
    consent = NodeAuthorization(provider=PROVIDER.address, node=NODE_KEY.address, nonce=0, deadline=deadline)
    signature = NODE_KEY.sign(consent, contracts.registry_domain)
    site.send(PROVIDER, "registry", "addNode", NODE_KEY.address, 0, deadline, signature)
    site.send(PROVIDER, "registry", "allot", NODE_KEY.address, 1, 100 * CREDIT)


def stage(site: Site) -> Scene:
    """The submission is logged among others, anchored, and condemned by the first two drawn seats."""
    domain = site.contracts.domain
    submission = Submission(
        pool_id=1,
        policy_version=0,
        node=NODE_KEY.address,
        counter=3,
        rules_hash=str(CONFIG["rules_hash"]),
        content_hash="0x" + "0c" * 32,
    )
    submission_id = submission.id(domain)
    documents = [received("0x" + f"{i:064x}", i) for i in range(5)]
    documents[2] = received(submission_id, 2)
    subjects = ["0x" + f"{i:064x}" for i in range(5)]
    subjects[2] = submission_id
    log = MemoryLog(event_leaf_hash(subject, document) for subject, document in zip(subjects, documents, strict=True))
    site.commit(0, log, 0)
    for _ in range(3):
        site.contracts.client.rpc.call("evm_mine")
    site.send(VALIDATORS[0], "ledger", "sealEpoch", 1, 0)
    inclusion = Inclusion(0, 2, hex0x(documents[2]), inclusion_proof(log, 2, log.size))
    return Scene(site, log, condemn(site, submission, submission_id, inclusion), submission_id)


def received(subject: str, index: int) -> bytes:
    event = {"data": {"num_bytes": 9}, "index": index, "schema_version": 1, "subject": subject, "time": 1}
    return canonical_json({**event, "type": "submission.received"})


def condemn(site: Site, submission: Submission, submission_id: str, inclusion: Inclusion) -> Accusation:
    drawn = first_drawn(site, submission_id, 2)
    verdicts = tuple(
        Verdict(
            submission_id=submission_id,
            pool_id=1,
            epoch=0,
            round=0,
            seat=seat,
            outcome=int(Outcome.SLASH),
            reason=RejectReason.TOPLOC_MISMATCH.code,
            rules_hash=submission.rules_hash,
            evidence_hash="0x" + f"{seat:064x}",
        )
        for seat, _, _ in drawn
    )
    domain = site.contracts.domain
    signatures = tuple(signer.sign(v, domain) for v, (_, _, signer) in zip(verdicts, drawn, strict=True))
    indexes = tuple(index for _, index, _ in drawn)
    return Accusation(submission, NODE_KEY.sign(submission, domain), inclusion, verdicts, signatures, indexes)


def first_drawn(site: Site, subject_id: str, count: int) -> list[tuple[int, int, Signer]]:
    """Seat, raw draw and key of the first `count` eligible seats."""
    beacon = site.pool.epoch_beacon(0)
    assert beacon is not None
    keys = {validator.address: validator for validator in VALIDATORS}
    draws = drawn_seats(beacon, subject_id, 0, site.pool.seats(), 0, {PROVIDER.address})
    return [(d.seat.index, d.draw_index, keys[d.seat.validator]) for _, d in zip(range(count), draws, strict=False)]


def test_a_forgery_is_accused_and_slashed(scene: Scene) -> None:
    scene.pool.accuse(scene.accusation)
    case = scene.pool.case_of(scene.submission_id)
    assert case.state is CaseState.ACCUSED
    with pytest.raises(TransactionReverted) as early:
        scene.pool.enforce(scene.submission_id)
    assert early.value.name == "TooEarly"
    scene.wait(15)
    scene.pool.enforce(scene.submission_id)
    assert scene.pool.case_of(scene.submission_id).state is CaseState.UPHELD
    assert scene.pool.allotment_wei(NODE_KEY.address) == 90 * CREDIT


def test_an_appeal_is_decided_by_the_jury_that_python_draws(scene: Scene) -> None:
    site, case_id = scene.site, scene.submission_id
    scene.pool.accuse(scene.accusation)
    accusers = [verdict.seat for verdict in scene.accusation.verdicts]
    assert list(scene.pool.accusers_of(case_id)) == accusers
    before = site.contracts.read("credits", "balanceOf", PROVIDER.address)
    scene.as_(PROVIDER).appeal(case_id)
    seat_jury(scene, case_id)
    vote_all(scene, case_id, Vote.OVERTURN)
    scene.pool.resolve(case_id)
    assert scene.pool.case_of(case_id).state is CaseState.OVERTURNED
    assert site.contracts.read("credits", "balanceOf", PROVIDER.address) - before == 5 * CREDIT
    for seat in accusers:
        assert site.contracts.read("registry", "seatOf", 1, seat)["bond"] == 45 * CREDIT
    assert scene.pool.allotment_wei(NODE_KEY.address) == 100 * CREDIT


def test_an_accepted_forgery_is_challenged_and_its_judge_pays(scene: Scene) -> None:
    site, case_id, accusation = scene.site, scene.submission_id, scene.accusation
    seat, _, signer = first_drawn(site, case_id, 1)[0]
    accepted = accusation.verdicts[0].model_copy(update={"outcome": int(Outcome.ACCEPT), "reason": 0})
    shown = (accusation.submission, accusation.node_signature, accusation.inclusion)
    outsider = scene.as_(OPERATOR)
    site.send(OPERATOR, "credits", "mint", OPERATOR.address, 5 * CREDIT)
    outsider.challenge(Challenge(*shown, RejectReason.TOPLOC_MISMATCH.code, "0x" + "ab" * 32))
    outsider.implicate(case_id, accepted, signer.sign(accepted, site.contracts.domain))
    assert scene.pool.implicated_of(case_id) == (seat,)
    assert {PROVIDER.address, OPERATOR.address, signer.address} == set(scene.pool.parties_of(case_id))
    case = scene.pool.case_of(case_id)
    assert (case.state, case.round, case.can_be_accused) == (CaseState.CHALLENGED, 2, True)
    seat_jury(scene, case_id)
    vote_all(scene, case_id, Vote.UPHOLD)
    scene.pool.resolve(case_id)
    assert scene.pool.case_of(case_id).state is CaseState.UPHELD
    assert site.contracts.read("registry", "seatOf", 1, seat)["bond"] == 45 * CREDIT
    assert scene.pool.allotment_wei(NODE_KEY.address) == 90 * CREDIT


def test_a_false_earnings_root_is_disputed_and_revoked(scene: Scene) -> None:
    site, account = scene.site, PROVIDER.address
    tree = earnings_tree({account: 7 * CREDIT, VALIDATORS[0].address: 2 * CREDIT})
    case_id = scene.pool.earnings_id(0)
    (seat, index, signer) = first_drawn(site, case_id, 1)[0]
    statement = EarningsAttestation(pool_id=1, epoch=0, root=tree.root, total_wei=9 * CREDIT, seat=seat)
    signature = signer.sign(statement, site.contracts.domain)
    site.send(COORDINATOR, "ledger", "commitEarnings", 1, 0, tree.root, 9 * CREDIT, [index], [signature])
    assert scene.pool.dispute_of(case_id) is None
    disputer = scene.as_(PROVIDER)
    disputer.dispute_earnings(0)
    disputer.implicate_attester(0, seat, signature)
    dispute = scene.pool.dispute_of(case_id)
    assert dispute is not None
    assert (dispute.disputer, dispute.coordinator) == (account, COORDINATOR.address)
    assert (dispute.attesters, dispute.bond_wei) == ((seat,), 5 * CREDIT)
    assert (dispute.epoch, dispute.root, dispute.total_wei) == (0, tree.root, 9 * CREDIT)
    assert {account, COORDINATOR.address, signer.address} == set(scene.pool.parties_of(case_id))
    seat_jury(scene, case_id)
    vote_all(scene, case_id, Vote.UPHOLD)
    with pytest.raises(TransactionReverted) as wrong:
        scene.pool.resolve(case_id)
    assert wrong.value.name == "WrongState"
    scene.pool.resolve_dispute(0)
    assert scene.pool.dispute_of(case_id) is None
    assert scene.pool.earnings_since(0) == []
    assert site.contracts.read("registry", "seatOf", 1, seat)["bond"] == 45 * CREDIT


def seat_jury(scene: Scene, case_id: str) -> None:
    jury = scene.pool.jury_of(case_id)
    assert jury is not None and not jury.is_seated
    for _ in range(3):
        scene.site.contracts.client.rpc.call("evm_mine")
    beacon = scene.pool.jury_beacon(jury.beacon_block)
    assert beacon is not None
    drawn = jury_seats(beacon, case_id, scene.pool.seats(), jury.epoch, scene.pool.parties_of(case_id), 3)
    indexes = [found.draw_index for found in drawn]
    with pytest.raises(TransactionReverted) as refused:
        scene.pool.call_jury(case_id, indexes[:2])
    assert refused.value.name == "JuryNotExact"
    scene.pool.call_jury(case_id, indexes)
    seated = scene.pool.jury_of(case_id)
    assert seated is not None and [juror.seat for juror in seated.jurors] == [found.seat.index for found in drawn]


def vote_all(scene: Scene, case_id: str, vote: Vote) -> None:
    jury, salt = scene.pool.jury_of(case_id), "0x" + "7e" * 32
    assert jury is not None and not jury.can_reveal(jury.commit_deadline - 1)
    keys = {validator.address: validator for validator in VALIDATORS}
    for position, juror in enumerate(jury.jurors):
        commitment = vote_commitment(case_id, juror.seat, vote, salt)
        scene.as_(keys[juror.validator]).commit_vote(case_id, position, commitment)
    committed = scene.pool.jury_of(case_id)
    assert committed is not None and committed.can_reveal(committed.commit_deadline - 1) and not committed.is_complete
    for position in range(len(jury.jurors)):
        scene.pool.reveal_vote(case_id, position, vote, salt)
    complete = scene.pool.jury_of(case_id)
    assert complete is not None and complete.is_complete


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda a: replace(a, node_signature=a.signatures[0]), "NotNodeSignature"),
        (lambda a: replace(a, signatures=a.signatures[::-1]), "NotSeatSignature"),
        (lambda a: replace(a, inclusion=replace(a.inclusion, leaf_index=1)), "NotInLog"),
        (lambda a: replace(a, inclusion=replace(a.inclusion, document="0x7b7d")), "NotReceivedEvent"),
        (lambda a: replace(a, verdicts=a.verdicts[:1]), "QuorumNotExact"),
    ],
)
def test_an_accusation_with_one_thing_changed_is_refused(scene: Scene, change, error: str) -> None:
    with pytest.raises(TransactionReverted) as refused:
        scene.pool.accuse(change(scene.accusation))
    assert refused.value.name == error


def test_attested_earnings_are_paid_to_the_wei(scene: Scene) -> None:
    site, account = scene.site, PROVIDER.address
    tree = earnings_tree({account: 7 * CREDIT + 1, VALIDATORS[0].address: 2 * CREDIT})
    total = 9 * CREDIT + 1
    subject = site.contracts.read("ledger", "earningsId", 1, 0)
    (seat, index, signer) = first_drawn(site, subject, 1)[0]
    statement = EarningsAttestation(pool_id=1, epoch=0, root=tree.root, total_wei=total, seat=seat)
    signature = signer.sign(statement, site.contracts.domain)
    site.send(COORDINATOR, "ledger", "commitEarnings", 1, 0, tree.root, total, [index], [signature])
    claim = ("claim", 1, 0, account, 7 * CREDIT + 1, tree.proof(0))
    with pytest.raises(TransactionReverted) as early:
        site.send(VALIDATORS[1], "ledger", *claim)
    assert early.value.name == "NotClaimableYet"
    scene.wait(160)
    before = site.contracts.read("credits", "balanceOf", account)
    site.send(VALIDATORS[1], "ledger", *claim)
    assert site.contracts.read("credits", "balanceOf", account) - before == 7 * CREDIT + 1
    assert site.contracts.read("pools", "funds", 1) == 500 * CREDIT - (7 * CREDIT + 1)
