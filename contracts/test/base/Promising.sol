// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Messages, Receipt, Submission} from "../../Messages.sol";
import {World} from "./World.sol";

/// Promises of inclusion as an honest coordinator makes and keeps them; tests then change one thing.
abstract contract Promising is World {
    function promisedSubmission(uint64 counter) internal view returns (Submission memory) {
        return Submission(poolId, 0, node, counter, RULES, "content");
    }

    function submissionDigest(Submission calldata submission) external view returns (bytes32) {
        return Messages.submission(ledger.domainSeparator(), submission);
    }

    function receiptDigest(Receipt calldata receipt) external view returns (bytes32) {
        return Messages.receipt(ledger.domainSeparator(), receipt);
    }

    function receiptFor(Submission memory submission, uint64 epoch) internal view returns (Receipt memory) {
        return Receipt(this.submissionDigest(submission), uint64(block.number), epoch);
    }

    function signReceipt(uint256 key, Receipt memory receipt) internal view returns (bytes memory) {
        return sign(key, this.receiptDigest(receipt));
    }

    /// What a coordinator logs that refuses a submission which a node forced in.
    function refusedDocument(bytes32 submissionId) internal pure returns (bytes memory) {
        return abi.encodePacked(
            '{"data":{"reason":"lease_unknown"},"index":7,"schema_version":1,"subject":"',
            submissionId,
            '","time":1700000000,"type":"submission.refused"}'
        );
    }

    /// The path from a leaf to the head over the log's first `size` leaves.
    function pathOf(uint64 index, uint64 size) internal view returns (bytes32[] memory) {
        return log.inclusion(index, size);
    }

    function headSize(uint64 epoch) internal view returns (uint64) {
        return ledger.epochOf(poolId, epoch).size;
    }
}
