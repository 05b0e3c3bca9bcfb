"""The journal: what a killed process had on its way is found by the next one, and by nobody at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from protocol.chain.journal import Journal, Pending
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.errors import ChainError, ConfigError
from protocol.signing import Signer
from tests.unit.protocol.chain.test_lane import NEVER, TO, FakeChain, fields, hash_of, make_lane

SIGNER = Signer(b"\x07" * 32)


class Killed(BaseException):
    """The process ends here."""


def signed(nonce: int, fee_wei: int = 10, chain_id: int = 31337) -> SignedTransaction:
    return Transaction(chain_id, nonce, 1, fee_wei, 21_000, TO, 0, b"").sign(SIGNER)


def test_what_is_kept_is_found_by_the_next_process_until_it_is_settled(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal")
    journal.keep(signed(5), 100.0)
    journal.keep(signed(4, 10), 90.0)
    journal.keep(signed(4, 12), 120.0)
    journal.close()
    journal = Journal(tmp_path / "new" / "journal")
    assert journal.unsettled(31337, SIGNER.address) == [
        Pending((signed(4, 10), signed(4, 12)), 120.0),
        Pending((signed(5),), 100.0),
    ]
    journal.settle(31337, SIGNER.address, 4)
    assert [pending.nonce for pending in journal.unsettled(31337, SIGNER.address)] == [5]
    journal.close()


def test_accounts_and_chains_are_kept_apart() -> None:
    journal = Journal()
    journal.keep(signed(4), 0.0)
    journal.keep(signed(4, chain_id=1), 0.0)
    journal.settle(1, SIGNER.address, 4)
    assert len(journal.unsettled(31337, SIGNER.address)) == 1
    assert journal.unsettled(1, SIGNER.address) == []
    assert journal.unsettled(31337, TO) == []


def test_a_second_process_with_the_same_journal_is_told(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    code = f"from pathlib import Path; from protocol.chain.journal import Journal; Journal(Path({str(file)!r}))"
    journal = Journal(file)
    with pytest.raises(ConfigError, match="another process sends with this account"):
        Journal(file)
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.returncode == 1
    assert "another process sends with this account" in other.stderr
    journal.close()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_command_keeps_its_journal_beside_the_key(tmp_path: Path) -> None:
    journal = Journal.beside(tmp_path / "key.json")
    journal.keep(signed(4), 0.0)
    journal.close()
    assert [file.name for file in tmp_path.iterdir()] == ["key.json.transactions.sqlite3"]
    journal = Journal.beside(tmp_path / "key.json")
    assert len(journal.unsettled(31337, SIGNER.address)) == 1
    with pytest.raises(ConfigError, match="another process sends"):
        Journal.beside(tmp_path / "key.json")
    journal.close()


def test_two_ways_to_a_key_lead_to_one_journal(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("key.json")
    journal = Journal.beside(tmp_path / "link.json")
    with pytest.raises(ConfigError, match="another process sends"):
        Journal.beside(tmp_path / "key.json")
    journal.close()
    Journal.beside(tmp_path / "key.json").close()


def test_a_damaged_journal_is_said_to_be_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    journal.keep(signed(4), 0.0)
    journal.close()
    content = file.read_bytes()
    file.write_bytes(b"\xff" * 100 + content[100:])
    with pytest.raises(ConfigError, match=r"damaged.*on its way"):
        Journal(file)
    file.write_bytes(content)
    assert len(Journal(file).unsettled(31337, SIGNER.address)) == 1


def test_a_folder_that_cant_hold_a_journal_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        Journal.beside(tmp_path / "file" / "key.json").keep(signed(4), 0.0)
    assert [entry["event"] for entry in logs] == ["journal.in_memory"]
    with capture_logs() as logs:
        Journal.beside(None).keep(signed(4), 0.0)
    assert logs == []


def die(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_kill_while_sending_neither_loses_nor_doubles(tmp_path: Path, is_taken: bool) -> None:
    chain = FakeChain()
    send_raw = chain.send_raw

    def send_and_die(raw: str) -> str:
        if is_taken:
            send_raw(raw)
        raise Killed

    chain.send_raw = send_and_die  # type: ignore[method-assign]
    journal = Journal(tmp_path / "journal")
    with pytest.raises(Killed):
        make_lane(chain, journal=journal).send(TO, b"stake")
    journal.close()
    chain.send_raw = send_raw  # type: ignore[method-assign]
    journal = Journal(tmp_path / "journal")
    with capture_logs() as logs:
        make_lane(chain, journal=journal).send(TO, b"stake")
    assert [entry["event"] for entry in logs] == ["transaction.taken_up"]
    assert len({hash_of(raw) for raw in chain.sent}) == 1
    make_lane(chain, journal=journal).send(TO, b"stake")  # once more is a second stake
    assert sorted({fields(raw)["nonce"] for raw in chain.sent}) == [4, 5]
    journal.close()


def test_the_start_of_a_process_sends_what_the_last_one_left() -> None:
    chain, journal = FakeChain(mines=lambda _: False), Journal()
    journal.keep(signed(4), 0.0)
    make_lane(chain, journal=journal).resume()
    assert fields(chain.sent[0])["nonce"] == 4
    assert fields(chain.sent[0])["fee"] > 10  # it was stuck at that fee
    chain.mines = lambda _: True
    make_lane(chain, journal=journal).resume()
    assert journal.unsettled(31337, SIGNER.address) == []
    assert len(chain.sent) == 1


def test_a_leftover_whose_nonce_is_gone_is_written_off_aloud() -> None:
    chain, journal = FakeChain(), Journal()
    journal.keep(signed(3), 0.0)
    with capture_logs() as logs:
        make_lane(chain, journal=journal).send(TO, b"another call")
    assert [entry["event"] for entry in logs] == ["account.shared"]
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4]


def test_a_gap_that_a_reorg_left_is_filled() -> None:
    chain, journal = FakeChain(mines=lambda _: False), Journal()
    journal.keep(signed(5), 0.0)
    lane = make_lane(chain, NEVER, journal)
    with pytest.raises(ChainError, match="isn't mined"):
        lane.send(TO, b"another call")
    assert {fields(raw)["nonce"] for raw in chain.sent} == {4, 5}


CALLS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from(["", "before", "after", "waiting"])), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(calls=CALLS)
def test_each_call_that_is_repeated_until_it_returns_happens_once(calls: list[tuple[bytes, str]]) -> None:
    """Kills at every place: before the node has it, after, and while it is waited for."""
    chain, journal = FakeChain(), Journal()
    send_raw, receipt = chain.send_raw, chain.receipt
    for data, kill in calls:
        places: dict[str, Callable[[], None]] = {
            "before": lambda: setattr(chain, "send_raw", die),
            "after": lambda: setattr(chain, "send_raw", lambda raw: die(send_raw(raw))),
            "waiting": lambda: setattr(chain, "receipt", die),
            "": lambda: None,
        }
        places[kill]()
        if kill:
            with pytest.raises(Killed):
                make_lane(chain, journal=journal).send(TO, data)
        chain.send_raw, chain.receipt = send_raw, receipt  # type: ignore[method-assign]
        assert make_lane(chain, journal=journal).send(TO, data).succeeded
    assert sorted({fields(raw)["nonce"] for raw in chain.sent}) == list(range(4, 4 + len(calls)))
    assert len(set(chain.sent)) == len(calls)
