// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Types and digests of the signed messages that contracts check; the same structs as in protocol/wire.py.
struct Submission {
    uint64 poolId;
    uint64 policyVersion;
    address node;
    uint64 counter;
    bytes32 rulesHash;
    bytes32 contentHash;
}

struct Verdict {
    bytes32 submissionId;
    uint64 poolId;
    uint64 epoch;
    uint32 round;
    uint32 seat;
    uint8 outcome;
    uint8 reason;
    bytes32 rulesHash;
    bytes32 evidenceHash;
}

struct Receipt {
    bytes32 submissionId;
    uint64 receivedBlock;
    uint64 includeByEpoch;
}

struct EpochAttestation {
    uint64 poolId;
    uint64 epoch;
    uint64 size;
    bytes32 root;
    uint32 seat;
}

struct EarningsAttestation {
    uint64 poolId;
    uint64 epoch;
    bytes32 root;
    uint128 totalWei;
    uint32 seat;
}

library Messages {
    bytes32 private constant NODE_AUTHORIZATION =
        keccak256("NodeAuthorization(address provider,address node,uint256 nonce,uint64 deadline)");
    bytes32 private constant SUBMISSION = keccak256(
        "Submission(uint64 poolId,uint64 policyVersion,address node,uint64 counter,bytes32 rulesHash,bytes32 contentHash)"
    );
    bytes32 private constant VERDICT = keccak256(
        "Verdict(bytes32 submissionId,uint64 poolId,uint64 epoch,uint32 round,uint32 seat,uint8 outcome,uint8 reason,bytes32 rulesHash,bytes32 evidenceHash)"
    );
    bytes32 private constant RECEIPT =
        keccak256("Receipt(bytes32 submissionId,uint64 receivedBlock,uint64 includeByEpoch)");
    bytes32 private constant EPOCH_ATTESTATION =
        keccak256("EpochAttestation(uint64 poolId,uint64 epoch,uint64 size,bytes32 root,uint32 seat)");
    bytes32 private constant EARNINGS_ATTESTATION =
        keccak256("EarningsAttestation(uint64 poolId,uint64 epoch,bytes32 root,uint128 totalWei,uint32 seat)");

    function nodeAuthorization(bytes32 domain, address provider, address node, uint256 nonce, uint64 deadline)
        internal
        pure
        returns (bytes32)
    {
        return _digest(domain, keccak256(abi.encode(NODE_AUTHORIZATION, provider, node, nonce, deadline)));
    }

    /// The digest that the node signed, which is the submission's id.
    function submission(bytes32 domain, Submission calldata message) internal pure returns (bytes32) {
        return _digest(domain, keccak256(abi.encode(SUBMISSION, message)));
    }

    function verdict(bytes32 domain, Verdict calldata message) internal pure returns (bytes32) {
        return _digest(domain, keccak256(abi.encode(VERDICT, message)));
    }

    function receipt(bytes32 domain, Receipt calldata message) internal pure returns (bytes32) {
        return _digest(domain, keccak256(abi.encode(RECEIPT, message)));
    }

    function epochAttestation(bytes32 domain, EpochAttestation memory message) internal pure returns (bytes32) {
        return _digest(domain, keccak256(abi.encode(EPOCH_ATTESTATION, message)));
    }

    function earningsAttestation(bytes32 domain, EarningsAttestation memory message) internal pure returns (bytes32) {
        return _digest(domain, keccak256(abi.encode(EARNINGS_ATTESTATION, message)));
    }

    function _digest(bytes32 domain, bytes32 structHash) private pure returns (bytes32) {
        return keccak256(abi.encodePacked(hex"1901", domain, structHash));
    }
}
