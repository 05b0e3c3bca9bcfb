// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What forge knows of the gas of the last call.
struct CallGas {
    uint64 limit;
    uint64 total;
    uint64 memoryUsed;
    int64 refunded;
    uint64 remaining;
}

/// The cheat codes of forge that the tests use.
interface Vm {
    function addr(uint256 key) external pure returns (address);
    function assume(bool condition) external pure;
    function chainId(uint256 id) external;
    function computeCreateAddress(address deployer, uint256 nonce) external pure returns (address);
    function deal(address account, uint256 balance) external;
    function expectEmit() external;
    function expectEmit(uint64 count) external;
    function expectRevert() external;
    function expectRevert(bytes4 selector) external;
    function expectRevert(bytes calldata data) external;
    function getNonce(address account) external view returns (uint64);
    function lastCallGas() external view returns (CallGas memory);
    function prank(address sender) external;
    function roll(uint256 number) external;
    function setBlockhash(uint256 number, bytes32 hash) external;
    /// Writes the figure down, or compares it with the committed one (snapshots/).
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function startPrank(address sender) external;
    function stopPrank() external;
    function warp(uint256 time) external;
}

/// What a test needs and no more.
abstract contract Test {
    Vm internal constant vm = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);
    bool public constant IS_TEST = true;

    error NotEqual(string what, uint256 found, uint256 expected);
    error NotTrue(string what);

    function assertEq(uint256 found, uint256 expected, string memory what) internal pure {
        if (found != expected) revert NotEqual(what, found, expected);
    }

    function assertEq(address found, address expected, string memory what) internal pure {
        assertEq(uint160(found), uint160(expected), what);
    }

    function assertEq(bytes32 found, bytes32 expected, string memory what) internal pure {
        assertEq(uint256(found), uint256(expected), what);
    }

    function assertTrue(bool condition, string memory what) internal pure {
        if (!condition) revert NotTrue(what);
    }

    /// `value` folded into [low, high].
    function bound(uint256 value, uint256 low, uint256 high) internal pure returns (uint256) {
        return low + value % (high - low + 1);
    }
}
