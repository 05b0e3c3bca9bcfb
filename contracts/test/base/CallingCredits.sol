// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Credits} from "../../Credits.sol";

/// Credits that call somebody while they move, as a hostile token could, and keep the first answer.
contract CallingCredits is Credits {
    address private _target;
    bytes private _call;
    bytes4 public answer;

    constructor(address minter) Credits(minter) {}

    function arm(address target, bytes calldata call_) external {
        (_target, _call, answer) = (target, call_, 0);
    }

    function _update(address from, address to, uint256 value) internal override {
        if (_target != address(0) && answer == 0) {
            (, bytes memory said) = _target.call(_call);
            answer = bytes4(said);
        }
        super._update(from, to, value);
    }
}
