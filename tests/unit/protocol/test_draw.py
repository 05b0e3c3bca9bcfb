"""The draw of seats: the contract's arithmetic, who is skipped, and where raw draws are counted."""

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import from_hex0x, keccak256
from protocol.draw import FOREVER, Seat, draw_seats, drawn_seats, is_reaudited, raw_draw
from protocol.errors import UsageError

BEACON = "0x" + "be" * 32
SUBMISSION = "0x" + "5b" * 32

hashes = st.binary(min_size=32, max_size=32).map(lambda raw: "0x" + raw.hex())


def validator(number: int) -> str:
    return f"0x{number + 1:040x}"


def seat_list(num_seats: int, seats_each: int = 1) -> list[Seat]:
    return [Seat(i, validator(i // seats_each)) for i in range(num_seats)]


@given(hashes, hashes, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 1000))
def test_a_raw_draw_is_the_contracts(beacon: str, subject: str, round_number: int, i: int, num_seats: int) -> None:
    words = encode(
        ["bytes32", "bytes32", "uint32", "uint32"], [from_hex0x(beacon), from_hex0x(subject), round_number, i]
    )
    assert raw_draw(beacon, subject, round_number, i, num_seats) == int.from_bytes(keccak256(words), "big") % num_seats


@given(hashes, hashes, st.integers(0, 5), st.integers(1, 12), st.integers(1, 3))
def test_every_validator_once_at_its_own_draw(
    beacon: str, subject: str, round_number: int, num_seats: int, seats_each: int
) -> None:
    seats = seat_list(num_seats, seats_each)
    drawn = list(drawn_seats(beacon, subject, round_number, seats, epoch=0))
    assert sorted(d.seat.validator for d in drawn) == sorted({seat.validator for seat in seats})
    for found in drawn:
        assert raw_draw(beacon, subject, round_number, found.draw_index, num_seats) == found.seat.index
    assert [d.draw_index for d in drawn] == sorted({d.draw_index for d in drawn})


def test_more_seats_are_drawn_more_often() -> None:
    seats = [Seat(i, validator(0 if i < 9 else 1)) for i in range(10)]
    ids = ["0x" + i.to_bytes(32, "big").hex() for i in range(200)]
    first = [draw_seats(BEACON, subject, 0, seats, 0, num_seats=1)[0].seat.validator for subject in ids]
    assert 160 <= first.count(validator(0)) <= 198


def test_owners_of_the_pool_and_of_the_submission_are_skipped() -> None:
    seats = seat_list(4)
    drawn = draw_seats(
        BEACON, SUBMISSION, 0, seats, 0, {validator(0), validator(2).upper().replace("0X", "0x")}, num_seats=4
    )
    assert {d.seat.validator for d in drawn} == {validator(1), validator(3)}


def test_seats_count_only_while_active() -> None:
    seats = [Seat(0, validator(0), 0, 5), Seat(1, validator(1), 7, FOREVER)]
    active = {epoch: {d.seat.index for d in drawn_seats(BEACON, SUBMISSION, 0, seats, epoch)} for epoch in (4, 5, 6, 7)}
    assert active == {4: {0}, 5: set(), 6: set(), 7: {1}}


def test_rounds_draw_differently() -> None:
    seats = seat_list(50)
    assert draw_seats(BEACON, SUBMISSION, 0, seats, 0, num_seats=5) != draw_seats(
        BEACON, SUBMISSION, 1, seats, 0, num_seats=5
    )


def test_an_empty_pool_draws_nobody() -> None:
    assert draw_seats(BEACON, SUBMISSION, 0, [], 0, num_seats=2) == ()


def test_a_seat_list_with_a_gap_is_an_error() -> None:
    with pytest.raises(UsageError, match="gap"):
        draw_seats(BEACON, SUBMISSION, 0, [Seat(1, validator(0))], 0, num_seats=1)


def test_a_later_seat_does_not_shift_an_earlier_draw() -> None:
    before = seat_list(7)
    after = [*before, Seat(7, validator(7), active_from_epoch=3)]
    assert list(drawn_seats(BEACON, SUBMISSION, 0, before, 2)) == list(drawn_seats(BEACON, SUBMISSION, 0, after, 2))
    assert 7 in {drawn.seat.index for drawn in drawn_seats(BEACON, SUBMISSION, 0, after, 3)}


def test_seats_in_another_order_than_the_chains_are_an_error() -> None:
    with pytest.raises(UsageError, match="isn't the chain's"):
        draw_seats(BEACON, SUBMISSION, 0, [Seat(0, validator(0), 5), Seat(1, validator(1), 4)], 6, num_seats=1)


def test_what_the_contract_would_not_check_is_not_drawn() -> None:
    seats = [Seat(i, validator(0)) for i in range(5000)] + [Seat(5000, validator(1))]
    subjects = ["0x" + i.to_bytes(32, "big").hex() for i in range(5)]
    assert all(len(list(drawn_seats(BEACON, subject, 0, seats, 0))) == 1 for subject in subjects)


@given(hashes, hashes, st.integers(0, 10_000))
def test_a_re_audit_is_picked_by_the_contracts_arithmetic(beacon: str, subject: str, share_bps: int) -> None:
    words = encode(["bytes32", "bytes32", "uint32", "uint32"], [from_hex0x(beacon), from_hex0x(subject), 1, 2**32 - 1])
    picked = int.from_bytes(keccak256(words), "big") % 10_000 < share_bps
    assert is_reaudited(beacon, subject, share_bps) == picked


def test_a_rate_of_nothing_picks_none_and_of_everything_all() -> None:
    ids = ["0x" + i.to_bytes(32, "big").hex() for i in range(50)]
    assert not any(is_reaudited(BEACON, subject, 0) for subject in ids)
    assert all(is_reaudited(BEACON, subject, 10_000) for subject in ids)


@pytest.mark.parametrize("share_bps", [1_000, 500])
def test_re_audits_come_at_their_rate_and_find_within_one_over_it(share_bps: int) -> None:
    """Of 20,000 submissions; and the mean count up to the first picked one is 1 / q."""
    ids = ["0x" + i.to_bytes(32, "big").hex() for i in range(20_000)]
    picked = [i for i, subject in enumerate(ids) if is_reaudited(BEACON, subject, share_bps)]
    rate = share_bps / 10_000
    assert abs(len(picked) / len(ids) - rate) < 4 * (rate * (1 - rate) / len(ids)) ** 0.5
    waits = [after - before for before, after in zip([-1, *picked], picked, strict=False)]
    assert abs(sum(waits) / len(waits) - 1 / rate) < 4 / rate / len(waits) ** 0.5
