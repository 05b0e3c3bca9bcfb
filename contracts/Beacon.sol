// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Where randomness comes from: the hash of a block that doesn't exist yet when the beacon is armed.
/// The one place to change for a chain that has something better.
library Beacon {
    enum Status {
        Pending,
        Ready,
        Missed
    }

    uint64 internal constant DELAY = 2;
    uint64 private constant LOOKBACK = 256;

    /// The block whose hash a beacon armed now will be.
    function arm() internal view returns (uint64) {
        return uint64(block.number) + DELAY;
    }

    /// The beacon, if it can be read now. A missed one must be armed again, to a block that nobody chooses.
    function read(uint64 beaconBlock) internal view returns (Status, bytes32) {
        if (block.number <= beaconBlock) return (Status.Pending, 0);
        if (block.number > beaconBlock + LOOKBACK) return (Status.Missed, 0);
        return (Status.Ready, blockhash(beaconBlock));
    }
}
