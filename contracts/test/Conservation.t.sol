// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Credits} from "../Credits.sol";
import {Court} from "../Court.sol";
import {Ledger} from "../Ledger.sol";
import {Pools} from "../Pools.sol";
import {Registry} from "../Registry.sol";
import {Actors} from "./base/Actors.sol";
import {Test} from "./base/Test.sol";

/// Whatever the parties do: no token appears or vanishes but by mint and burn, every contract holds exactly what it
/// owes, and no hold, slash or claim exceeds what stands behind it.
contract ConservationTest is Test {
    struct Target {
        address target;
        bytes4[] selectors;
    }

    Actors private actors;
    Credits private credits;
    Registry private registry;
    Pools private pools;
    Court private court;
    Ledger private ledger;
    uint64 private poolId;

    function setUp() public {
        actors = new Actors();
        actors.setUp();
        address[4] memory where;
        (where, poolId) = actors.world();
        (credits, registry) = (Credits(where[0]), Registry(where[1]));
        (pools, court) = (Pools(where[2]), Court(where[3]));
        ledger = court.ledger();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(actors);
    }

    function targetSelectors() external view returns (Target[] memory targets) {
        targets = new Target[](1);
        targets[0] = Target(address(actors), actors.selectors());
    }

    /// One campaign checks all: each would play the same games again.
    function invariant_money_is_conserved_and_bounded() external view {
        Actors.Bound memory all = actors.boundByCases();
        _everyContractHoldsWhatItOwes(all.bonds);
        _tokensComeFromMintAndGoByBurnOnly();
        (address node, address otherNode) = actors.nodes();
        _holdsAreThoseOfOpenCasesAndWithinTheAllotment(node, all.held);
        _holdsAreThoseOfOpenCasesAndWithinTheAllotment(otherNode, all.otherHeld);
        _seatsAnswerInOpenCasesOnly(all.duties);
        _claimsStayWithinWhatIsProvenAndFunded(all.withheld);
    }

    /// At the end of each game the pool is drained, and nothing stays anywhere: no wei is lost in a contract.
    function afterInvariant() external {
        actors.drain();
        address[5] memory all =
            [address(registry), address(pools), address(ledger), address(court), address(court.jury())];
        for (uint256 i; i < all.length; i++) {
            assertEq(credits.balanceOf(all[i]), 0, "a contract keeps something");
        }
        assertEq(actors.wallets(), credits.totalSupply(), "everybody has what there is");
    }

    /// Stakes are what their owners put in, less what cases took: nobody else moved any.
    function _everyContractHoldsWhatItOwes(uint256 bonds) private view {
        assertEq(actors.providersStake(), actors.stakeOfProvider(), "the provider's stake");
        assertEq(actors.validatorsStake(), actors.stakeOfValidators(), "the validators' stakes");
        uint256 stakes = actors.stakeOfProvider() + actors.stakeOfValidators();
        assertEq(credits.balanceOf(address(registry)), stakes, "registry");
        (uint256 bond, uint256 heldBond) = actors.coordinatorBond();
        (uint256 demandBonds, uint256 heldByDemands) = actors.demandsOwe();
        assertEq(credits.balanceOf(address(pools)), pools.funds(poolId) + bond + demandBonds, "pools");
        (uint256 disputeBond, uint256 heldByDispute) = actors.disputeOwes();
        assertEq(credits.balanceOf(address(court.jury())), disputeBond, "jury");
        assertEq(heldBond, heldByDemands + heldByDispute, "held of the coordinator's bond");
        assertTrue(heldBond <= bond, "held beyond the bond");
        assertEq(credits.balanceOf(address(court)), bonds, "court");
        assertEq(credits.balanceOf(address(ledger)), 0, "ledger");
    }

    function _tokensComeFromMintAndGoByBurnOnly() private view {
        uint256 inside = credits.balanceOf(address(registry)) + credits.balanceOf(address(pools))
            + credits.balanceOf(address(court)) + credits.balanceOf(address(court.jury()));
        assertEq(inside + actors.wallets(), credits.totalSupply(), "supply");
        assertTrue(credits.totalSupply() <= actors.minted(), "minted from nothing");
    }

    function _seatsAnswerInOpenCasesOnly(uint256[] memory duties) private view {
        for (uint32 seat; seat < duties.length; seat++) {
            assertEq(actors.dutiesInBook(seat), duties[seat], "duties");
        }
    }

    /// What is proven and not yet claimed lies in the pool's funds.
    function _claimsStayWithinWhatIsProvenAndFunded(uint256 withheld) private view {
        (address provider, address payee,) = actors.people();
        (,,,, uint128 funds, uint128 paid) = pools.poolOf(poolId);
        assertEq(uint256(funds) + paid, actors.funded(), "funded");
        assertEq(ledger.claimed(poolId, provider) + ledger.claimed(poolId, payee), paid, "claimed");
        assertEq(ledger.withheld(poolId, provider), withheld, "withheld");
        (, Ledger.Earnings memory newest) = ledger.newestEarnings(poolId);
        assertTrue(paid <= newest.total, "paid beyond the proven total");
        assertTrue(ledger.provenTotal(poolId) <= uint256(paid) + funds, "unclaimed earnings without funds");
    }

    function _holdsAreThoseOfOpenCasesAndWithinTheAllotment(address node, uint256 held) private view {
        Registry.Allotment memory entry = registry.allotmentOf(node, poolId);
        assertEq(entry.held, held, "held");
        assertTrue(entry.held <= uint256(entry.amount) + entry.unbonding, "held beyond the allotment");
    }
}
