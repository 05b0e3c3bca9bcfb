// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Court} from "../Court.sol";
import {Evidence} from "../Evidence.sol";
import {Accusing} from "./base/Accusing.sol";

/// A log that receives a submission twice offers a second beacon, and with it other seats. Honest seats judge by the
/// first leaf and sign its epoch, so that the second is of no use.
contract SecondLeafTest is Accusing {
    function test_verdicts_by_the_first_leaf_accuse_under_no_other() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        uint64 index = append(id, receivedDocument(id));
        a.inclusion.epoch = commitAndSeal();
        a.inclusion.leafIndex = index;
        a.inclusion.proof = log.inclusion(index, log.size);
        a.drawIndexes = drawIndexes(a.inclusion.epoch, id, 0, 2, provider);
        vm.expectRevert(abi.encodeWithSelector(Evidence.VerdictMismatch.selector, 0));
        court.accuse(a);
    }

    /// What nobody honest signs: the positive twin.
    function test_verdicts_that_name_the_second_epoch_are_what_it_takes() public {
        Court.Accusation memory a = accusation(NODE, 0);
        bytes32 id = idOf(a.submission);
        uint64 index = append(id, receivedDocument(id));
        a.inclusion.epoch = commitAndSeal();
        a.inclusion.leafIndex = index;
        a.inclusion.proof = log.inclusion(index, log.size);
        judge(a, a.inclusion.epoch, 0, 2);
        court.accuse(a);
    }
}
