// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Credits} from "../Credits.sol";
import {Test} from "./base/Test.sol";

contract CreditsTest is Test {
    address private constant ALICE = address(0xa11ce);
    Credits private credits;

    function setUp() public {
        credits = new Credits(address(this));
    }

    function test_minter_mints_and_nobody_else() public {
        credits.mint(ALICE, 5);
        assertEq(credits.balanceOf(ALICE), 5, "balance");
        vm.expectRevert(abi.encodeWithSelector(Credits.NotMinter.selector, ALICE));
        vm.prank(ALICE);
        credits.mint(ALICE, 5);
    }

    function test_minter_is_handed_over_in_two_steps() public {
        credits.proposeMinter(ALICE);
        assertEq(credits.minter(), address(this), "minter before acceptance");
        vm.expectRevert(abi.encodeWithSelector(Credits.NotPendingMinter.selector, address(this)));
        credits.acceptMinter();
        vm.prank(ALICE);
        credits.acceptMinter();
        assertEq(credits.minter(), ALICE, "minter after acceptance");
        vm.expectRevert(abi.encodeWithSelector(Credits.NotMinter.selector, address(this)));
        credits.mint(ALICE, 1);
        vm.expectRevert(abi.encodeWithSelector(Credits.NotPendingMinter.selector, ALICE));
        vm.prank(ALICE);
        credits.acceptMinter();
    }

    function test_a_renounced_minter_is_gone_and_so_is_its_proposal() public {
        credits.proposeMinter(ALICE);
        credits.renounceMinter();
        vm.expectRevert(abi.encodeWithSelector(Credits.NotPendingMinter.selector, ALICE));
        vm.prank(ALICE);
        credits.acceptMinter();
        vm.expectRevert(abi.encodeWithSelector(Credits.NotMinter.selector, address(this)));
        credits.mint(ALICE, 1);
    }

    function test_faucet_runs_on_test_chains_only() public {
        vm.prank(ALICE);
        credits.faucet(7);
        assertEq(credits.balanceOf(ALICE), 7, "balance");
        vm.chainId(1);
        vm.expectRevert(abi.encodeWithSelector(Credits.NotTestChain.selector, 1));
        credits.faucet(7);
    }
}
