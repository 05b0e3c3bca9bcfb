"""A whole testnet in which honest work is challenged: verifier processes are the jury, and the challenger pays."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.cases import CaseState, JuryRecord, Vote
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.pool import ChainPool
from protocol.cli import run as run_command
from protocol.clock import SystemClock
from protocol.errors import NotEligible
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from testnet.accounts import PASSWORD, keystore_path
from testnet.closing import Findings, close
from testnet.plan import Plan
from testnet.profile import AMOUNTS
from testnet.run import LOOK_SECONDS, Run
from testnet.table import Progress

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("e2e")]

JURY_SIZE = 3
PLAN = Plan(num_steps=1, num_workers=1, num_verifiers=JURY_SIZE + 1, cheats=(), groups_per_step=8)
"""One seat accepts, the others are the jury."""


@dataclass
class Challenger:
    """Challenges the newest accepted submission by the command, as soon as one can be; without a reason to."""

    run: Run
    folder: Path
    document: dict[str, Any] | None = None

    def __call__(self, progress: Progress) -> None:
        accepted = self.run.observer.tally.accepted_ids
        if self.document is None and accepted:
            self._challenge(accepted[-1])

    def equip(self, contracts: Contracts) -> None:
        """The operator has no part in the work; it gets a keystore and the bond."""
        operator = self.run.accounts.operator
        create_keystore(keystore_path(self.folder, operator), PASSWORD, secret=operator.secret, scrypt_n=CHEAP_SCRYPT_N)
        (self.folder / "password").touch(mode=0o600)
        (self.folder / "password").write_text(PASSWORD)
        lane = Lane(contracts.client, operator.signer, self.run.clock)
        contracts.send(lane, "credits", "mint", operator.address, AMOUNTS["challenge_bond"])

    def _challenge(self, submission_id: str) -> None:
        run, keystore = self.run, keystore_path(self.folder, self.run.accounts.operator)
        where = ["--coordinator", run.site.coordinator_url, "--chain", run.node.url]
        where += ["--ledger", run.genesis.contracts.ledger, "--evidence", str(self.folder / "evidence.json")]
        key = ["--keystore", str(keystore), "--password-file", str(self.folder / "password"), "--json"]
        told = ["--without-check", "--reason", "toploc_mismatch"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exit_code = run_command(["audit", "challenge", submission_id, *told, *where, *key])
        if exit_code == 0:
            self.document = json.loads(out.getvalue())
        else:  # a slow machine: it is too late for this one, and the next is tried
            assert exit_code == NotEligible.exit_code


@dataclass(frozen=True)
class Judged:
    """A run whose case is over."""

    run: Run
    challenge: dict[str, Any]
    state: CaseState
    jury: JuryRecord
    paid_wei: int
    findings: Findings
    history: Any


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, read_history: Any) -> Judged:
    run, folder = Run(PLAN, tmp_path_factory.mktemp("jury"), SystemClock()), tmp_path_factory.mktemp("challenger")
    challenger = Challenger(run, folder)
    try:
        run.start()
        contracts = Contracts.connect(run.node.url, run.genesis.contracts.ledger, run.clock)
        with contextlib.closing(contracts.client.rpc):
            challenger.equip(contracts)
            run.run_until_done(challenger)
            assert challenger.document is not None
            case_id, pool = challenger.document["submission_id"], ChainPool(contracts, run.genesis.pool_id)
            while not pool.case_of(case_id).state.is_over:
                run.turn()
                run.clock.wait(threading.Event(), LOOK_SECONDS)
            jury, owner = pool.jury_of(case_id), run.accounts.providers[0].owner.address
            assert jury is not None
            state, paid_wei = pool.case_of(case_id).state, contracts.read("credits", "balanceOf", owner)
        findings = close(run, run.clock)
    finally:
        run.stop()
    return Judged(run, challenger.document, state, jury, paid_wei, findings, read_history(run.run_dir))


def test_the_verifiers_of_the_testnet_are_the_jury_and_see_honest_work(judged: Judged) -> None:
    accepting = judged.challenge["implicated_seats"]
    assert [juror.vote for juror in judged.jury.jurors] == [Vote.OVERTURN] * JURY_SIZE
    assert judged.state is CaseState.OVERTURNED
    assert len(accepting) == 1 and accepting[0] not in {juror.seat for juror in judged.jury.jurors}
    for juror in judged.jury.jurors:
        (name,) = [account.name for account in judged.run.accounts.validators if account.address == juror.validator]
        log = (judged.run.run_dir / "logs" / f"{name}.log").read_text()
        events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
        assert {"vote.given", "vote.committed", "vote.revealed"} <= set(events)
        assert "jury.failed" not in events


def test_the_challengers_bond_is_the_providers_and_the_jurors(judged: Judged) -> None:
    assert judged.paid_wei == AMOUNTS["challenge_bond"] // 2
    (end,) = [event["data"]["arguments"] for event in judged.history.of("chain.CaseOverturned")]
    assert end["submission_id"] == judged.challenge["submission_id"]
    assert not judged.history.of("chain.Slashed", "chain.SeatSlashed")


def test_the_audit_holds_on_every_wei(judged: Judged) -> None:
    failed = [report for report in judged.findings.reports if report.exit_code]
    assert not failed, "\n".join(line for report in failed for line in report.lines())
