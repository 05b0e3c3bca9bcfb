// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Cases} from "../../Cases.sol";
import {Court} from "../../Court.sol";
import {Verdict} from "../../Messages.sol";
import {Draw, Juror, Panel, Vote} from "../../Types.sol";
import {Accusing} from "./Accusing.sol";

/// Cases before a jury, in a pool with enough validators for one.
abstract contract Judging is Accusing {
    uint256 internal constant BOND = 5 ether;
    uint32 internal constant JURY_ROUND = 2;
    bytes32 internal constant SALT_OF_VOTES = "salt";

    function numValidators() internal pure virtual override returns (uint256) {
        return 9;
    }

    // --- opening ---

    function appealBy(address appellant, bytes32 id) internal {
        give(appellant, address(court), BOND);
        vm.prank(appellant);
        court.appeal(id);
    }

    function accusedAndAppealed() internal returns (bytes32 id) {
        id = court.accuse(accusation(NODE, 0));
        appealBy(provider, id);
    }

    function challengeBy(address challenger, Court.Accusation memory a) internal returns (bytes32) {
        give(challenger, address(court), BOND);
        vm.prank(challenger);
        return court.challenge(a.submission, a.nodeSignature, a.inclusion, TOPLOC_MISMATCH, "evidence");
    }

    /// Logs that round 0 has settled the submission: the leaf, and its path.
    function settled(Court.Accusation memory a, bool accepted) internal returns (Court.Inclusion memory leaf) {
        return settledLeaf(idOf(a.submission), accepted);
    }

    function settledLeaf(bytes32 id, bool accepted) internal returns (Court.Inclusion memory leaf) {
        leaf.document = settledDocument(accepted);
        leaf.leafIndex = append(id, leaf.document);
        leaf.epoch = commitAndSeal();
        leaf.proof = log.inclusion(leaf.leafIndex, log.size);
    }

    /// An acceptance by the seat at `position` of the round-0 draw, with its signature.
    function acceptance(Court.Accusation memory a, uint256 position)
        internal
        view
        returns (Verdict memory verdict, bytes memory signature)
    {
        return acceptanceOf(idOf(a.submission), a.inclusion.epoch, position);
    }

    function acceptanceOf(bytes32 id, uint64 epoch, uint256 position)
        internal
        view
        returns (Verdict memory verdict, bytes memory signature)
    {
        uint32[] memory indexes = drawIndexes(epoch, id, 0, position + 1, provider);
        (uint32 seat, uint256 key) = seatAt(epoch, id, 0, indexes[position]);
        verdict = Verdict(id, poolId, epoch, 0, seat, 0, 0, RULES, "accepted");
        signature = sign(key, this.verdictDigestOf(verdict));
    }

    function implicateAt(Court.Accusation memory a, uint256 position) internal returns (uint32 seat) {
        (Verdict memory verdict, bytes memory signature) = acceptance(a, position);
        court.implicate(idOf(a.submission), verdict, signature);
        return verdict.seat;
    }

    // --- the jury ---

    /// Waits for the beacon and seats the jury.
    function seatJury(bytes32 id) internal {
        mine(3);
        jury.callJury(id, juryIndexes(id, 3));
    }

    /// The first eligible draws by the plain reading: nobody who is part of the case.
    function juryIndexes(bytes32 id, uint256 count) internal view returns (uint32[] memory) {
        Panel memory panel = jury.panelOf(id);
        bytes32 beacon = blockhash(panel.beaconBlock);
        return drawIndexesBy(Draw(poolId, panel.epoch, beacon, id, JURY_ROUND, 0, partiesOf(id)), count);
    }

    function partiesOf(bytes32 id) internal view returns (address[] memory parties) {
        if (jury.isDispute(id)) return jury.partiesOf(id);
        uint32[] memory accusers = court.accusersOf(id);
        uint32[] memory implicated = court.implicatedOf(id);
        parties = new address[](2 + accusers.length + implicated.length);
        (parties[0], parties[1]) = (provider, court.bondOf(id).owner);
        for (uint256 i; i < accusers.length; i++) {
            parties[2 + i] = validatorAt(accusers[i]);
        }
        for (uint256 i; i < implicated.length; i++) {
            parties[2 + accusers.length + i] = validatorAt(implicated[i]);
        }
    }

    function commitTo(bytes32 id, uint256 position, Vote vote) internal {
        Juror memory juror = jury.panelOf(id).jurors[position];
        vm.prank(juror.validator);
        jury.commitVote(id, position, keccak256(abi.encode(id, juror.seat, vote, SALT_OF_VOTES)));
    }

    /// Three votes, committed and then revealed; Vote.None stays away.
    function voteAll(bytes32 id, Vote first, Vote second, Vote third) internal {
        Vote[3] memory votes = [first, second, third];
        uint256 numCommitted;
        for (uint256 i; i < 3; i++) {
            if (votes[i] == Vote.None) continue;
            commitTo(id, i, votes[i]);
            numCommitted++;
        }
        if (numCommitted < 3) vm.warp(jury.panelOf(id).commitDeadline);
        for (uint256 i; i < 3; i++) {
            if (votes[i] != Vote.None) jury.revealVote(id, i, votes[i], SALT_OF_VOTES);
        }
    }

    /// Seats a jury whose members all vote the same, and carries out what it found.
    function decide(bytes32 id, Vote vote) internal {
        seatJury(id);
        voteAll(id, vote, vote, vote);
        court.resolve(id);
    }

    function stateIs(bytes32 id, Cases.CaseState state) internal view {
        assertEq(uint256(court.caseOf(id).state), uint256(state), "state");
    }
}
