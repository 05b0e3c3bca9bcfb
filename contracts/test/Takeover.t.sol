// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EpochQuorum} from "../EpochQuorum.sol";
import {Ledger} from "../Ledger.sol";
import {EpochAttestation, Messages} from "../Messages.sol";
import {Seats} from "../Seats.sol";
import {Earning} from "./base/Earning.sol";

/// A coordinator that stops for good: seats commit epochs in its place.
contract TakeoverTest is Earning {
    struct Attested {
        uint64 epoch;
        uint64 size;
        bytes32 root;
        bytes32[] proof;
        uint32[] drawIndexes;
        bytes[] signatures;
    }

    function test_drawn_seats_commit_an_epoch_once_the_coordinator_is_silent() public {
        uint256 silentTime = block.timestamp + 60;
        commitAndSeal();
        append("id", receivedDocument("id"));
        Attested memory a = _attested(2);
        vm.warp(silentTime - 1);
        _refused(a, abi.encodeWithSelector(Ledger.CoordinatorNotSilent.selector, silentTime));
        vm.warp(silentTime);
        _send(a);
        (uint64 count, uint64 size, bytes32 root,) = ledger.head(poolId);
        assertEq(count, 2, "count");
        assertEq(size, a.size, "size");
        assertEq(root, a.root, "root");
    }

    function test_seats_go_on_at_once_until_the_coordinator_is_back() public {
        commitAndSeal();
        pass(60);
        _send(_attested(2));
        assertEq(ledger.silentTime(poolId), block.timestamp, "still silent");
        mine(3);
        ledger.sealEpoch(poolId, 1);
        _send(_attested(2));
        uint256 silentTime = block.timestamp + 60;
        commit();
        assertEq(ledger.silentTime(poolId), silentTime, "back");
        mine(3);
        ledger.sealEpoch(poolId, 3);
        _refused(_attested(2), abi.encodeWithSelector(Ledger.CoordinatorNotSilent.selector, silentTime));
    }

    function test_what_was_earned_is_paid_without_the_coordinator() public {
        commitAndSeal();
        pass(60);
        _send(_attested(2));
        mine(3);
        ledger.sealEpoch(poolId, 1);
        Statement memory s = statementOf(1, 7 ether, 3 ether);
        vm.prank(stranger);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
        pass(80);
        claimFor(1, provider);
        assertEq(credits.balanceOf(provider), 7 ether, "paid");
    }

    function test_it_takes_two_thirds_of_the_drawn_seats() public {
        commitAndSeal();
        pass(60);
        _refused(_attested(1), abi.encodeWithSelector(EpochQuorum.EpochQuorumMissing.selector, 1, 2));
        _refused(_attested(0), abi.encodeWithSelector(EpochQuorum.EpochQuorumMissing.selector, 0, 2));
        _send(_attested(2));
    }

    function test_the_quorum_is_of_the_draw_limit_where_there_are_more_seats() public {
        for (uint256 i; i < 6; i++) {
            bondSeat(FIRST_VALIDATOR + numValidators() + i);
        }
        commitAndSeal();
        pass(60);
        _refused(_attested(2), abi.encodeWithSelector(EpochQuorum.EpochQuorumMissing.selector, 2, 3));
        _send(_attested(3));
    }

    function test_a_pool_of_one_validator_goes_on_and_one_without_any_does_not() public {
        vm.prank(creator);
        poolId = pools.createPool(config());
        log.cut(0);
        commitAndSeal();
        pass(60);
        (uint64 epoch, bytes32 root, bytes32[] memory proof) = closeEpoch();
        vm.expectRevert(abi.encodeWithSelector(Seats.NoSeats.selector, 1));
        ledger.commitEpochAttested(poolId, epoch, 2, root, proof, new uint32[](0), new bytes[](0));
        bondSeat(FIRST_VALIDATOR);
        vm.prank(coordinator);
        ledger.commitEpoch(poolId, epoch, 2, root, proof);
        for (uint256 i; i < 2; i++) {
            commitAndSeal();
        }
        pass(60);
        _send(_attested(1));
    }

    function test_released_seats_that_left_for_good_are_not_waited_for() public {
        commitAndSeal();
        _release(0);
        _release(1);
        pass(10 + UNBONDING);
        _refused(_attested(1), abi.encodeWithSelector(EpochQuorum.EpochQuorumMissing.selector, 1, 2));
        _withdraw(0);
        _withdraw(1);
        _send(_attested(1));
    }

    function test_another_head_another_seat_or_another_signer_is_refused() public {
        commitAndSeal();
        pass(60);
        Attested memory a = _attested(2);
        (uint32 seat,) = seatDrawnAt(a.epoch, a.drawIndexes[0]);
        bytes memory expected = abi.encodeWithSelector(EpochQuorum.NotSeatAttestation.selector, seat);
        a.signatures[0] = sign(NODE, _digest(a, seat));
        _refused(a, expected);
        a = _attested(2);
        a.root = "another";
        _refused(a, expected);
        a = _attested(2);
        a.size++;
        _refused(a, expected);
        a = _attested(2);
        a.drawIndexes[1] = a.drawIndexes[0];
        _refused(a, abi.encodeWithSelector(Seats.DrawIndexesUnordered.selector, a.drawIndexes[0]));
        a = _attested(2);
        a.signatures = new bytes[](1);
        _refused(a, abi.encodeWithSelector(EpochQuorum.SignaturesDiffer.selector));
    }

    function test_seats_rewrite_no_history() public {
        commitAndSeal();
        pass(60);
        log.cut(0);
        append("other", "history");
        append("other", "history");
        (uint64 epoch, bytes32 root, bytes32[] memory proof) = closeEpoch();
        Attested memory a = _sign(Attested(epoch, 3, root, proof, new uint32[](2), new bytes[](2)));
        _refused(a, abi.encodeWithSelector(Ledger.LogInconsistent.selector));
    }

    function test_before_the_first_epoch_or_its_beacon_there_are_no_seats_to_draw() public {
        pass(1_000_000);
        assertEq(ledger.silentTime(poolId), type(uint256).max, "never");
        vm.expectRevert(abi.encodeWithSelector(Ledger.CoordinatorNotSilent.selector, type(uint256).max));
        ledger.commitEpochAttested(poolId, 0, 1, "root", new bytes32[](0), new uint32[](2), new bytes[](2));
        commit();
        pass(60);
        vm.expectRevert(abi.encodeWithSelector(Ledger.BeaconMissing.selector, 0));
        ledger.commitEpochAttested(poolId, 1, 2, "root", new bytes32[](0), new uint32[](2), new bytes[](2));
        vm.expectRevert(abi.encodeWithSelector(Ledger.EpochOutOfOrder.selector, 2, 1));
        ledger.commitEpochAttested(poolId, 2, 2, "root", new bytes32[](0), new uint32[](2), new bytes[](2));
    }

    function testFuzz_fewer_than_two_thirds_commit_nothing(uint8 more, uint8 signing) public {
        uint256 numMore = more % 4;
        for (uint256 i; i < numMore; i++) {
            bondSeat(FIRST_VALIDATOR + numValidators() + i);
        }
        commitAndSeal();
        pass(60);
        uint256 drawn = numMore == 0 ? 3 : 4;
        uint256 count = signing % (drawn + 1);
        Attested memory a = _attested(count);
        if (3 * count < 2 * drawn) vm.expectRevert();
        _submit(a);
        assertEq(ledger.epochCount(poolId), 3 * count < 2 * drawn ? 1 : 2, "epochs");
    }

    // --- inside ---

    /// The open epoch with its own leaf, signed by the first `count` drawn seats.
    function _attested(uint256 count) private returns (Attested memory a) {
        (a.epoch, a.root, a.proof) = closeEpoch();
        a.size = log.size;
        (a.drawIndexes, a.signatures) = (new uint32[](count), new bytes[](count));
        return _sign(a);
    }

    function _sign(Attested memory a) private view returns (Attested memory) {
        a.drawIndexes = _drawn(a.epoch, a.signatures.length);
        for (uint256 k; k < a.signatures.length; k++) {
            (uint32 seat, uint256 key) = seatDrawnAt(a.epoch, a.drawIndexes[k]);
            a.signatures[k] = sign(key, _digest(a, seat));
        }
        return a;
    }

    /// By the last epoch's beacon, among the seats of the epoch to be committed.
    function _drawn(uint64 epoch, uint256 count) private view returns (uint32[] memory indexes) {
        indexes = new uint32[](count);
        uint256[] memory seen = new uint256[](count);
        uint256 found;
        for (uint32 i; found < count; i++) {
            (uint32 seat, uint256 key) = seatDrawnAt(epoch, i);
            bool isNew = registry.seatIsActive(poolId, seat, epoch);
            for (uint256 k; k < found; k++) {
                isNew = isNew && seen[k] != key;
            }
            if (!isNew) continue;
            (indexes[found], seen[found]) = (i, key);
            found++;
        }
    }

    function seatDrawnAt(uint64 epoch, uint32 index) private view returns (uint32 seat, uint256 key) {
        bytes32 beacon = ledger.epochBeacon(poolId, epoch - 1);
        seat = registry.drawSeat(poolId, beacon, ledger.epochId(poolId, epoch), 0, index, epoch);
        (address validator,,,,,,) = registry.seatOf(poolId, seat);
        key = FIRST_VALIDATOR;
        while (vm.addr(key) != validator) key++;
    }

    function _digest(Attested memory a, uint32 seat) private view returns (bytes32) {
        EpochAttestation memory message = EpochAttestation(poolId, a.epoch, a.size, a.root, seat);
        return Messages.epochAttestation(ledger.domainSeparator(), message);
    }

    function _send(Attested memory a) private {
        vm.prank(stranger);
        _submit(a);
    }

    function _submit(Attested memory a) private {
        ledger.commitEpochAttested(poolId, a.epoch, a.size, a.root, a.proof, a.drawIndexes, a.signatures);
    }

    /// What was signed is no leaf then.
    function _refused(Attested memory a, bytes memory why) private {
        vm.expectRevert(why);
        _submit(a);
        log.cut(log.size - 1);
    }

    function _release(uint32 seat) private {
        (address validator,,,,,,) = registry.seatOf(poolId, seat);
        vm.prank(validator);
        registry.releaseSeat(poolId, seat);
    }

    function _withdraw(uint32 seat) private {
        (address validator,,,,,,) = registry.seatOf(poolId, seat);
        vm.prank(validator);
        registry.withdrawSeat(poolId, seat);
    }
}
