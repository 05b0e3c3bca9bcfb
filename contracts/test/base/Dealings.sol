// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bonds} from "../../Bonds.sol";
import {Cases} from "../../Cases.sol";
import {Inclusions} from "../../Inclusions.sol";
import {Registry} from "../../Registry.sol";
import {Juror} from "../../Types.sol";
import {Earning} from "./Earning.sol";
import {Judging} from "./Judging.sol";
import {Promising} from "./Promising.sol";
import {World} from "./World.sol";

/// A pool in which much goes on: which cases, demands and disputes there are, and what the contracts then owe to whom.
abstract contract Dealings is Judging, Earning, Promising {
    /// A demand, and the leaf that answers it; no `size` where there is none.
    struct Doubt {
        bytes32 demandId;
        bytes32 submissionId;
        uint64 index;
        uint64 size;
    }

    /// What it takes to accuse or challenge a submission again.
    struct Filed {
        uint256 nodeKey;
        uint64 counter;
        uint64 epoch;
        uint64 leafIndex;
    }

    /// What open cases bind, and upheld ones withhold for good.
    struct Bound {
        uint256 bonds; // of open appeals and challenges
        uint256 held; // of the first node's allotment
        uint256 otherHeld; // of the other's
        uint256 withheld; // of the provider's earnings
        uint256[] duties; // of each seat
    }

    uint256 internal constant MAX = 50 ether;
    uint256 internal constant MAX_SEATS = 14;

    uint256 public minted;
    uint256 public funded;
    /// What the owners put in and cases didn't take: of the provider, and of all validators.
    uint256 public stakeOfProvider;
    uint256 public stakeOfValidators;
    uint64 internal _counter;
    uint128 internal _firstEarned;
    uint128 internal _secondEarned;
    uint64[] internal _earningEpochs;
    bytes32[] internal _caseIds;
    Doubt[] internal _doubts;
    Filed[] internal _filed; // for each case
    bool internal _isDisputed;
    uint64 internal _disputedEpoch;

    function numValidators() internal pure override(World, Judging) returns (uint256) {
        return Judging.numValidators();
    }

    // --- what the contracts owe ---

    function boundByCases() external view returns (Bound memory all) {
        all.duties = new uint256[](registry.numSeats(poolId));
        if (_isDisputed) {
            bytes32 id = ledger.earningsId(poolId, _disputedEpoch);
            _count(all.duties, jury.disputeOf(id).attesters);
            _countJurors(all.duties, id);
        }
        for (uint256 i; i < _caseIds.length; i++) {
            Cases.Case memory entry = court.caseOf(_caseIds[i]);
            if (_isOpen(entry)) _add(all, _caseIds[i], entry);
            else if (entry.state == Cases.CaseState.Upheld) all.withheld += entry.heldEarnings;
        }
    }

    function providersStake() public view returns (uint256) {
        return uint256(registry.freeStake(provider)) + _allotted(node) + _allotted(otherNode);
    }

    function validatorsStake() public view returns (uint256 sum) {
        for (uint256 i; i < numValidators(); i++) {
            sum += registry.freeStake(validators[i]);
        }
        for (uint32 seat; seat < registry.numSeats(poolId); seat++) {
            sum += bondAt(seat);
        }
    }

    /// Of open demands: what their demanders bonded, and what they hold of the coordinator's bond.
    function demandsOwe() external view returns (uint256 bonds, uint256 held) {
        for (uint256 i; i < _doubts.length; i++) {
            Inclusions.Demand memory demand = ledger.demandOf(_doubts[i].demandId);
            if (demand.state != Inclusions.DemandState.Open) continue;
            Bonds.Hold memory hold = pools.holdOf(_doubts[i].demandId);
            (bonds, held) = (bonds + hold.deposit, held + hold.amount);
        }
    }

    function coordinatorBond() external view returns (uint256 amount, uint256 held) {
        return (pools.bondOf(poolId, coordinator).amount, pools.bondOf(poolId, coordinator).held);
    }

    /// Of the open dispute: its bond, and what it holds of the coordinator's.
    function disputeOwes() external view returns (uint256 bond, uint256 held) {
        if (!_isDisputed) return (0, 0);
        return (BOND, pools.holdOf(ledger.earningsId(poolId, _disputedEpoch)).amount);
    }

    function dutiesInBook(uint32 seat) external view returns (uint256) {
        return dutiesOf(seat);
    }

    /// All that anybody has outside the contracts.
    function wallets() external view returns (uint256 sum) {
        sum = credits.balanceOf(provider) + credits.balanceOf(payee) + credits.balanceOf(stranger);
        sum += credits.balanceOf(creator) + credits.balanceOf(coordinator);
        for (uint256 i; i < numValidators(); i++) {
            sum += credits.balanceOf(validators[i]);
        }
    }

    function world() external view returns (address[4] memory, uint64) {
        return ([address(credits), address(registry), address(pools), address(court)], poolId);
    }

    function nodes() external view returns (address, address) {
        return (node, otherNode);
    }

    function people() external view returns (address, address, address) {
        return (provider, payee, address(ledger));
    }

    // --- inside ---

    function _allotted(address of_) internal view returns (uint256) {
        Registry.Allotment memory entry = registry.allotmentOf(of_, poolId);
        return uint256(entry.amount) + entry.unbonding;
    }

    function _isBeforeJury(Cases.Case memory entry) internal pure returns (bool) {
        return entry.state == Cases.CaseState.Appealed || entry.state == Cases.CaseState.Challenged;
    }

    function _isOpen(Cases.Case memory entry) internal pure returns (bool) {
        return entry.state == Cases.CaseState.Accused || _isBeforeJury(entry);
    }

    function _add(Bound memory all, bytes32 id, Cases.Case memory entry) internal view {
        if (entry.state != Cases.CaseState.Accused) all.bonds += BOND;
        if (entry.node == node) all.held += entry.heldStake;
        else all.otherHeld += entry.heldStake;
        all.withheld += entry.heldEarnings;
        _count(all.duties, court.accusersOf(id));
        _count(all.duties, court.implicatedOf(id));
        // A challenge that lapsed leaves its jury's record behind when it is accused after that.
        if (_isBeforeJury(entry)) _countJurors(all.duties, id);
    }

    function _countJurors(uint256[] memory counts, bytes32 id) internal view {
        Juror[] memory jurors = jury.panelOf(id).jurors;
        for (uint256 k; k < jurors.length; k++) {
            counts[jurors[k].seat]++;
        }
    }

    function _count(uint256[] memory counts, uint32[] memory seats) internal pure {
        for (uint256 i; i < seats.length; i++) {
            counts[seats[i]]++;
        }
    }
}
