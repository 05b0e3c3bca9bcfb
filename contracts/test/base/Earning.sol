// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {EarningsAttestation, Messages} from "../../Messages.sol";
import {World} from "./World.sol";

/// Earnings of two accounts (the provider and one more), as drawn seats attest them.
abstract contract Earning is World {
    struct Statement {
        uint64 epoch;
        bytes32 root;
        uint128 total;
        uint32[] drawIndexes;
        uint32[] seats;
        bytes[] signatures;
    }

    address internal payee = vm.addr(5);
    mapping(uint64 epoch => mapping(address account => uint128)) internal earned;

    /// Commits that the provider has earned `first` and the other account `second` up to `epoch`.
    function earn(uint64 epoch, uint128 first, uint128 second) internal {
        send(statementOf(epoch, first, second));
    }

    function statementOf(uint64 epoch, uint128 first, uint128 second) internal returns (Statement memory s) {
        (earned[epoch][provider], earned[epoch][payee]) = (first, second);
        s.epoch = epoch;
        s.root = Hashes.commutativeKeccak256(leafOf(provider, first), leafOf(payee, second));
        s.total = first + second;
        attest(s);
    }

    /// Signed by the first drawn seat.
    function attest(Statement memory s) internal view {
        bytes32 id = ledger.earningsId(poolId, s.epoch);
        s.drawIndexes = drawIndexes(s.epoch, id, 0, 1, address(0));
        s.seats = new uint32[](1);
        s.signatures = new bytes[](1);
        uint256 key;
        (s.seats[0], key) = seatAt(s.epoch, id, 0, s.drawIndexes[0]);
        s.signatures[0] = sign(key, digestOf(s, 0));
    }

    function digestOf(Statement memory s, uint256 k) internal view returns (bytes32) {
        EarningsAttestation memory message = EarningsAttestation(poolId, s.epoch, s.root, s.total, s.seats[k]);
        return Messages.earningsAttestation(ledger.domainSeparator(), message);
    }

    function send(Statement memory s) internal {
        vm.prank(coordinator);
        ledger.commitEarnings(poolId, s.epoch, s.root, s.total, s.drawIndexes, s.signatures);
    }

    function refused(Statement memory s, bytes memory why) internal {
        vm.expectRevert(why);
        send(s);
    }

    function leafOf(address account, uint128 cumulative) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(abi.encode(account, cumulative))));
    }

    function proofOf(uint64 epoch, address account) internal view returns (bytes32[] memory proof) {
        address other = account == provider ? payee : provider;
        proof = new bytes32[](1);
        proof[0] = leafOf(other, earned[epoch][other]);
    }

    function claimFor(uint64 epoch, address account) internal {
        ledger.claim(poolId, epoch, account, earned[epoch][account], proofOf(epoch, account));
    }
}
