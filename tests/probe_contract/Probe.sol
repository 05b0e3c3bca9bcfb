// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What the tests of the chain client talk to: every kind of value, event and refusal that our contracts use.
contract Probe {
    struct Work {
        uint64 poolId;
        bytes32 contentHash;
        address node;
        uint128[] amountsWei;
    }

    uint256 public value;

    event Stored(uint64 indexed poolId, address indexed sender, string note, uint256 value);

    error TooSmall(uint256 given, uint256 wanted, address caller);

    constructor(uint256 first) {
        value = first;
    }

    function store(uint64 poolId, uint256 newValue, string calldata note) external {
        if (newValue < 10) revert TooSmall(newValue, 10, msg.sender);
        value = newValue;
        emit Stored(poolId, msg.sender, note, newValue);
    }

    /// Succeeds in one block only, so that a transaction can fail after its gas was estimated.
    function storeInBlock(uint256 number) external {
        if (block.number != number) revert TooSmall(block.number, number, msg.sender);
        value = number;
    }

    function refuse(string calldata why) external pure {
        revert(why);
    }

    function divide(uint256 a, uint256 b) external pure returns (uint256) {
        return a / b;
    }

    function echo(Work calldata work, bytes calldata data, bool isOn)
        external
        pure
        returns (Work memory, bytes memory, bool)
    {
        return (work, data, isOn);
    }

    function head() external view returns (uint64 numBlocks, bytes32 parentHash, uint256 time) {
        return (uint64(block.number), blockhash(block.number - 1), block.timestamp);
    }

    function hashOf(uint256 number) external view returns (bytes32) {
        return blockhash(number);
    }
}
