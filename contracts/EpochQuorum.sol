// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EpochAttestation, Messages} from "./Messages.sol";
import {Registry} from "./Registry.sol";
import {Seats} from "./Seats.sol";
import {Draw} from "./Types.sol";

/// The seats that stand in for a coordinator: two thirds of those that are drawn sign the head that they all hold.
library EpochQuorum {
    error EpochQuorumMissing(uint256 signatures, uint256 quorum);
    error SignaturesDiffer();
    error NotSeatAttestation(uint32 seat);

    /// Reverts unless the seats at the raw draws `indexes` are drawn, are enough, and each signed `attestation` as its
    /// own (`attestation.seat` is written over).
    function check(
        Registry registry,
        bytes32 domain,
        Draw memory draw,
        EpochAttestation memory attestation,
        uint32[] calldata indexes,
        bytes[] calldata signatures
    ) internal view {
        if (indexes.length != signatures.length) revert SignaturesDiffer();
        uint256 quorum = _quorum(registry, draw, indexes.length);
        if (indexes.length < quorum) revert EpochQuorumMissing(indexes.length, quorum);
        (uint32[] memory seats, address[] memory validators) = registry.drawnSeats(draw, indexes);
        for (uint256 k; k < seats.length; k++) {
            attestation.seat = seats[k];
            bytes32 digest = Messages.epochAttestation(domain, attestation);
            if (ECDSA.recoverCalldata(digest, signatures[k]) != validators[k]) revert NotSeatAttestation(seats[k]);
        }
    }

    /// Two thirds of the draw's limit, or of all seats that can be drawn where these are fewer, and never none.
    function _quorum(Registry registry, Draw memory draw, uint256 numSignatures) private view returns (uint256) {
        uint256 full = _twoThirds(draw.limit);
        // Counting costs a call for each raw draw: only where it can matter.
        if (numSignatures >= full) return full;
        return _twoThirds(_numDrawn(registry, draw));
    }

    function _twoThirds(uint256 count) private pure returns (uint256) {
        return count == 0 ? 1 : (2 * count + 2) / 3;
    }

    /// How many seats the round draws when it goes on to its limit.
    function _numDrawn(Registry registry, Draw memory draw) private view returns (uint256 count) {
        address[] memory seen = new address[](draw.limit);
        for (uint32 index; index <= Seats.MAX_DRAW_INDEX && count < draw.limit; index++) {
            uint32 seat = registry.drawSeat(draw.poolId, draw.beacon, draw.id, draw.round, index, draw.epoch);
            if (!registry.seatIsActive(draw.poolId, seat, draw.epoch)) continue;
            (address validator,,,,,,) = registry.seatOf(draw.poolId, seat);
            if (!_contains(seen, count, validator)) seen[count++] = validator;
        }
    }

    function _contains(address[] memory list, uint256 count, address wanted) private pure returns (bool) {
        for (uint256 i; i < count; i++) {
            if (list[i] == wanted) return true;
        }
        return false;
    }
}
