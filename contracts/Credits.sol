// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {TestChain} from "./TestChain.sol";

/// The token that stakes, bonds and, by default, payments are made in.
contract Credits is ERC20Permit, ERC20Burnable {
    address public minter;
    address public pendingMinter;

    event MinterProposed(address indexed minter, address indexed proposed);
    event MinterChanged(address indexed from, address indexed to);

    error NotMinter(address caller);
    error NotPendingMinter(address caller);
    error NotTestChain(uint256 chainId);

    constructor(address firstMinter) ERC20("proofpool credit", "PPC") ERC20Permit("proofpool credit") {
        minter = firstMinter;
        emit MinterChanged(address(0), firstMinter);
    }

    modifier onlyMinter() {
        if (msg.sender != minter) revert NotMinter(msg.sender);
        _;
    }

    function mint(address to, uint256 amount) external onlyMinter {
        _mint(to, amount);
    }

    /// Free tokens for whoever asks, on test chains only.
    function faucet(uint256 amount) external {
        if (!TestChain.isHere()) revert NotTestChain(block.chainid);
        _mint(msg.sender, amount);
    }

    /// The first of two steps; proposing zero takes a proposal back.
    function proposeMinter(address proposed) external onlyMinter {
        pendingMinter = proposed;
        emit MinterProposed(msg.sender, proposed);
    }

    function acceptMinter() external {
        if (msg.sender != pendingMinter) revert NotPendingMinter(msg.sender);
        _changeMinter(msg.sender);
    }

    /// From then on the supply can only shrink.
    function renounceMinter() external onlyMinter {
        _changeMinter(address(0));
    }

    function _changeMinter(address to) private {
        emit MinterChanged(minter, to);
        minter = to;
        pendingMinter = address(0);
    }
}
