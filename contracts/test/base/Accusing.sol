// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Court} from "../../Court.sol";
import {Messages, Submission, Verdict} from "../../Messages.sol";
import {World} from "./World.sol";

/// Accusations as honest parties put them together; tests then change one thing.
abstract contract Accusing is World {
    uint8 internal constant SLASH = 2;
    uint8 internal constant TOPLOC_MISMATCH = 65;

    function submissionOf(address maker, uint64 counter) internal view returns (Submission memory) {
        return Submission(poolId, 0, maker, counter, RULES, "content");
    }

    function idOf(Submission memory submission) internal view returns (bytes32) {
        return this.digestOf(submission);
    }

    function digestOf(Submission calldata submission) external view returns (bytes32) {
        return Messages.submission(ledger.domainSeparator(), submission);
    }

    function verdictDigestOf(Verdict calldata verdict) external view returns (bytes32) {
        return Messages.verdict(ledger.domainSeparator(), verdict);
    }

    /// Logs the submission among others, commits, stores the beacon, and accuses by the first two drawn seats.
    function accusation(uint256 nodeKey, uint64 counter) internal returns (Court.Accusation memory a) {
        a.submission = submissionOf(vm.addr(nodeKey), counter);
        bytes32 id = idOf(a.submission);
        append("another", receivedDocument("another"));
        a.inclusion.leafIndex = append(id, receivedDocument(id));
        append("a third", receivedDocument("a third"));
        a.inclusion.epoch = commitAndSeal();
        a.inclusion.document = receivedDocument(id);
        a.inclusion.proof = log.inclusion(a.inclusion.leafIndex, log.size);
        a.nodeSignature = sign(nodeKey, id);
        judge(a, a.inclusion.epoch, 0, 2);
    }

    /// Logs that round 0 settled the submission, and has the seats that the anchoring epoch draws accuse in round 1.
    function reaudit(Court.Accusation memory a, bool accepted) internal returns (uint64 epoch) {
        a.settling.document = settledDocument(accepted);
        a.settling.leafIndex = append(idOf(a.submission), a.settling.document);
        epoch = commitAndSeal();
        a.settling.epoch = epoch;
        a.settling.proof = log.inclusion(a.settling.leafIndex, log.size);
        judge(a, epoch, 1, 2);
    }

    /// Verdicts of the first `count` seats of a round, drawn by the beacon of `epoch`.
    function judge(Court.Accusation memory a, uint64 epoch, uint32 round, uint256 count) internal view {
        bytes32 id = idOf(a.submission);
        a.drawIndexes = drawIndexes(epoch, id, round, count, provider);
        a.verdicts = new Verdict[](count);
        a.signatures = new bytes[](count);
        for (uint256 k; k < count; k++) {
            (uint32 seat,) = seatAt(epoch, id, round, a.drawIndexes[k]);
            a.verdicts[k] =
                Verdict(id, poolId, epoch, round, seat, SLASH, TOPLOC_MISMATCH, RULES, keccak256(abi.encode(seat)));
        }
        signVerdicts(a);
    }

    /// Signs the verdicts as they are, each by the seat at its draw.
    function signVerdicts(Court.Accusation memory a) internal view {
        for (uint256 k; k < a.verdicts.length; k++) {
            Verdict memory verdict = a.verdicts[k];
            (, uint256 key) = seatAt(verdict.epoch, idOf(a.submission), verdict.round, a.drawIndexes[k]);
            a.signatures[k] = sign(key, this.verdictDigestOf(verdict));
        }
    }
}
