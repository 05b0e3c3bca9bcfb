// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Chain ids on which tokens are free and one validator may slash.
library TestChain {
    function isHere() internal view returns (bool) {
        return block.chainid == 1337 || block.chainid == 31337;
    }
}
