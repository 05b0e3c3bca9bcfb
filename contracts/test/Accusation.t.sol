// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Court} from "../Court.sol";
import {Evidence} from "../Evidence.sol";
import {Ledger} from "../Ledger.sol";
import {PoolConfig} from "../Types.sol";
import {Seats} from "../Seats.sol";
import {Accusing} from "./base/Accusing.sol";

/// What an accusation must contain: each test changes one thing of an accusation that holds.
contract AccusationTest is Accusing {
    function config() internal view override returns (PoolConfig memory c) {
        c = super.config();
        c.reauditBps = 5_000;
    }

    function test_unchanged_it_holds_and_only_once() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = court.accuse(a);
        _refused(a, abi.encodeWithSelector(Court.CaseExists.selector, id));
    }

    // --- the submission ---

    function test_the_node_must_have_signed() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.nodeSignature = sign(OTHER_NODE, idOf(a.submission));
        _refused(a, abi.encodeWithSelector(Evidence.NotNodeSignature.selector, node));
    }

    function test_a_changed_submission_is_another_one() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.submission.counter = 9;
        _refused(a, abi.encodeWithSelector(Evidence.NotNodeSignature.selector, node));
    }

    function test_a_malleable_signature_is_refused() public {
        Court.Accusation memory a = accusation(NODE, 0);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(NODE, idOf(a.submission));
        uint256 order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        bytes32 high = bytes32(order - uint256(s));
        a.nodeSignature = abi.encodePacked(r, high, v == 27 ? uint8(28) : uint8(27));
        _refused(a, abi.encodeWithSelector(ECDSA.ECDSAInvalidSignatureS.selector, high));
    }

    function test_a_key_that_was_never_a_node_has_nothing_to_lose() public {
        Court.Accusation memory a = accusation(299, 0);
        _refused(a, abi.encodeWithSelector(Evidence.UnknownNode.selector, vm.addr(299)));
    }

    // --- the log ---

    function test_the_leaf_must_be_in_the_named_epoch() public {
        Court.Accusation memory a = accusation(NODE, 0);
        commitAndSeal();
        a.inclusion.epoch = 1;
        a.inclusion.proof = log.inclusion(a.inclusion.leafIndex, log.size);
        judge(a, 1, 0, 2);
        _refused(a, abi.encodeWithSelector(Evidence.NotInEpoch.selector, 1, a.inclusion.leafIndex));
    }

    function test_another_document_is_not_in_the_log() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.inclusion.document = receivedDocument("another");
        _refused(a, abi.encodeWithSelector(Evidence.NotInLog.selector));
    }

    function test_a_later_event_about_the_submission_cannot_pick_another_beacon() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        a.inclusion.document = '{"data":{},"type":"submission.accepted"}';
        a.inclusion.leafIndex = append(id, a.inclusion.document);
        a.inclusion.epoch = commitAndSeal();
        a.inclusion.proof = log.inclusion(a.inclusion.leafIndex, log.size);
        judge(a, a.inclusion.epoch, 0, 2);
        _refused(a, abi.encodeWithSelector(Evidence.NotReceivedEvent.selector));
    }

    function test_an_epoch_that_was_not_committed_holds_nothing() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.inclusion.epoch = 5;
        _refused(a, abi.encodeWithSelector(Ledger.NoSuchEpoch.selector, 5));
    }

    function test_after_judge_period_and_window_it_is_too_late() public {
        Court.Accusation memory a = accusation(NODE, 0);
        uint256 deadline = ledger.epochOf(poolId, 0).time + 55;
        vm.warp(deadline + 1);
        _refused(a, abi.encodeWithSelector(Evidence.AccusedTooLate.selector, deadline));
        vm.warp(deadline);
        court.accuse(a);
    }

    // --- the judges ---

    function test_fewer_verdicts_than_the_quorum_accuse_nobody() public {
        Court.Accusation memory a = accusation(NODE, 0);
        judge(a, 0, 0, 1);
        _refused(a, abi.encodeWithSelector(Evidence.QuorumNotExact.selector, 1, 2));
        judge(a, 0, 0, 0);
        _refused(a, abi.encodeWithSelector(Evidence.QuorumNotExact.selector, 0, 2));
    }

    function test_every_verdict_has_its_signature_and_its_draw() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes[] memory signatures = a.signatures;
        a.signatures = new bytes[](1);
        a.signatures[0] = signatures[0];
        _refused(a, abi.encodeWithSelector(Evidence.LengthsDiffer.selector));
        a.signatures = signatures;
        uint32[] memory drawn = a.drawIndexes;
        a.drawIndexes = new uint32[](1);
        a.drawIndexes[0] = drawn[0];
        _refused(a, abi.encodeWithSelector(Evidence.LengthsDiffer.selector));
        a.drawIndexes = drawn;
        court.accuse(a);
    }

    function test_one_seat_does_not_count_twice() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.drawIndexes[1] = a.drawIndexes[0];
        a.verdicts[1] = a.verdicts[0];
        a.signatures[1] = a.signatures[0];
        _refused(a, abi.encodeWithSelector(Seats.DrawIndexesUnordered.selector, a.drawIndexes[0]));
    }

    function test_a_second_seat_of_one_validator_is_passed_over() public {
        bondSeat(FIRST_VALIDATOR);
        bondSeat(FIRST_VALIDATOR + 1);
        bondSeat(FIRST_VALIDATOR + 2);
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        (, uint256 firstKey) = seatAt(0, id, 0, a.drawIndexes[0]);
        uint32 repeated = a.drawIndexes[0] + 1;
        uint256 key;
        for (;; repeated++) {
            (, key) = seatAt(0, id, 0, repeated);
            if (key == firstKey) break;
        }
        (uint32 seat,) = seatAt(0, id, 0, repeated);
        a.drawIndexes[1] = repeated;
        a.verdicts[1].seat = seat;
        signVerdicts(a);
        _refused(a, abi.encodeWithSelector(Seats.NotDrawn.selector, repeated, seat));
    }

    function test_the_providers_own_seat_is_passed_over() public {
        stake(provider, 50 ether);
        vm.prank(provider);
        uint32 own = registry.bondSeat(poolId);
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        uint32 index;
        while (registry.drawSeat(poolId, ledger.epochBeacon(poolId, 0), id, 0, index, 0) != own) index++;
        a.drawIndexes[0] = index;
        a.drawIndexes[1] = index + 1;
        _refused(a, abi.encodeWithSelector(Seats.NotDrawn.selector, index, own));
    }

    function test_an_inactive_seat_is_passed_over() public {
        vm.prank(vm.addr(FIRST_VALIDATOR));
        registry.releaseSeat(poolId, 0);
        commit();
        commit();
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        assertEq(a.inclusion.epoch, 2, "epoch");
        uint32 index;
        while (registry.drawSeat(poolId, ledger.epochBeacon(poolId, 2), id, 0, index, 2) != 0) index++;
        a.drawIndexes[0] = index;
        a.drawIndexes[1] = index + 1;
        _refused(a, abi.encodeWithSelector(Seats.NotDrawn.selector, index, 0));
    }

    function test_no_seat_beyond_the_draw_limit_judges() public {
        for (uint256 i = numValidators(); i < 12; i++) {
            bondSeat(FIRST_VALIDATOR + i);
        }
        Court.Accusation memory a = accusation(NODE, 0);
        uint32[] memory far = drawIndexes(0, idOf(a.submission), 0, 5, provider);
        a.drawIndexes[1] = far[3];
        (a.verdicts[1].seat,) = seatAt(0, idOf(a.submission), 0, far[3]);
        signVerdicts(a);
        Court.Accusation memory beyond = a;
        court.accuse(a);
        beyond = accusation(NODE, 1);
        far = drawIndexes(1, idOf(beyond.submission), 0, 5, provider);
        beyond.drawIndexes[1] = far[4];
        _refused(beyond, abi.encodeWithSelector(Seats.TooManyDrawn.selector, 4));
        beyond.drawIndexes[1] = 256;
        _refused(beyond, abi.encodeWithSelector(Seats.DrawIndexTooLarge.selector, 256));
    }

    function test_a_seat_bonded_later_does_not_shift_earlier_draws() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bondSeat(FIRST_VALIDATOR + 3);
        bondSeat(FIRST_VALIDATOR + 4);
        court.accuse(a);
    }

    // --- the verdicts ---

    function test_verdicts_must_be_of_this_draw_and_agree() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes memory mismatch = abi.encodeWithSelector(Evidence.VerdictMismatch.selector, 1);
        a.verdicts[1].outcome = 1;
        signVerdicts(a);
        _refused(a, mismatch);
        a.verdicts[1].outcome = SLASH;
        a.verdicts[1].reason = 64;
        signVerdicts(a);
        _refused(a, mismatch);
        a.verdicts[1].reason = TOPLOC_MISMATCH;
        a.verdicts[1].rulesHash = "other rules";
        signVerdicts(a);
        _refused(a, mismatch);
        a.verdicts[1].rulesHash = RULES;
        a.verdicts[1].seat ^= 1;
        signVerdicts(a);
        _refused(a, mismatch);
        a.verdicts[1].seat ^= 1;
        a.verdicts[1].submissionId = "another";
        signVerdicts(a);
        _refused(a, mismatch);
    }

    function test_a_verdict_must_be_signed_by_its_seats_validator() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.signatures[1] = sign(NODE, this.verdictDigestOf(a.verdicts[1]));
        _refused(a, abi.encodeWithSelector(Evidence.NotSeatSignature.selector, a.verdicts[1].seat));
    }

    function test_a_reason_that_the_pool_does_not_slash_accuses_nobody() public {
        Court.Accusation memory a = accusation(NODE, 0);
        a.verdicts[0].reason = 35;
        a.verdicts[1].reason = 35;
        signVerdicts(a);
        _refused(a, abi.encodeWithSelector(Evidence.NotSlashable.selector, 35));
    }

    function test_signatures_of_another_deployment_count_for_nothing() public {
        Court.Accusation memory a = accusation(NODE, 0);
        setUp();
        log.cut(0);
        vm.expectRevert(abi.encodeWithSelector(Evidence.NotNodeSignature.selector, node));
        court.accuse(a);
    }

    // --- rounds ---

    function test_a_re_audit_is_judged_by_the_settlings_beacon_if_it_picked_the_submission() public {
        (uint64 picked, uint64 passedOver) = (type(uint64).max, type(uint64).max);
        for (uint64 counter; picked == type(uint64).max || passedOver == type(uint64).max; counter++) {
            Court.Accusation memory a = accusation(NODE, counter);
            bytes32 id = idOf(a.submission);
            commitAndSeal();
            uint64 epoch = reaudit(a, counter % 2 == 0);
            if (court.isReaudited(ledger.epochBeacon(poolId, epoch), id, 5_000)) {
                court.accuse(a);
                picked = counter;
            } else {
                _refused(a, abi.encodeWithSelector(Evidence.NotReaudited.selector, id));
                passedOver = counter;
            }
        }
    }

    function test_a_re_audit_shows_the_settling_in_its_own_epoch() public {
        Court.Accusation memory a = _picked();
        bytes memory document = a.settling.document;
        a.settling.document = settledDocument(false);
        _refused(a, abi.encodeWithSelector(Evidence.NotInLog.selector));
        a.settling.document = "short";
        _refused(a, abi.encodeWithSelector(Evidence.NotSettlingEvent.selector));
        a.settling.document = document;
        a.settling.epoch = 0;
        _refused(a, abi.encodeWithSelector(Evidence.NotInEpoch.selector, 0, a.settling.leafIndex));
        a.settling = a.inclusion;
        _refused(a, abi.encodeWithSelector(Evidence.NotSettlingEvent.selector));
    }

    function test_a_re_audits_window_counts_from_the_settling() public {
        Court.Accusation memory a = _picked();
        uint256 deadline = ledger.epochOf(poolId, a.settling.epoch).time + 55;
        vm.warp(deadline + 1);
        _refused(a, abi.encodeWithSelector(Evidence.AccusedTooLate.selector, deadline));
        vm.warp(deadline);
        court.accuse(a);
    }

    function test_a_verdict_that_names_the_receiving_epoch_does_not_count_in_round_1() public {
        Court.Accusation memory a = _picked();
        a.verdicts[1].epoch = a.inclusion.epoch;
        bytes memory mismatch = abi.encodeWithSelector(Evidence.VerdictMismatch.selector, 1);
        vm.expectRevert(mismatch);
        court.accuse(a);
    }

    /// Accepted, and picked for a re-audit that says otherwise.
    function _picked() private returns (Court.Accusation memory a) {
        for (uint64 counter = 100;; counter++) {
            a = accusation(NODE, counter);
            uint64 epoch = reaudit(a, true);
            if (court.isReaudited(ledger.epochBeacon(poolId, epoch), idOf(a.submission), 5_000)) return a;
        }
    }

    function test_round_2_is_the_jurys() public {
        Court.Accusation memory a = accusation(NODE, 0);
        judge(a, 0, 2, 2);
        _refused(a, abi.encodeWithSelector(Evidence.RoundUnknown.selector, 2));
    }

    function test_before_the_beacon_is_stored_nobody_is_drawn() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(submissionOf(node, 1));
        a.submission = submissionOf(node, 1);
        a.nodeSignature = sign(NODE, id);
        a.inclusion.leafIndex = append(id, receivedDocument(id));
        a.inclusion.document = receivedDocument(id);
        a.inclusion.epoch = commit();
        a.inclusion.proof = log.inclusion(a.inclusion.leafIndex, log.size);
        _refused(a, abi.encodeWithSelector(Evidence.BeaconMissing.selector, 1));
    }

    function _refused(Court.Accusation memory a, bytes memory why) private {
        vm.expectRevert(why);
        court.accuse(a);
    }
}
