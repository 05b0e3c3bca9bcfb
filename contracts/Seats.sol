// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Draw} from "./Types.sol";

/// One unit of validator bond in a pool. Active in epochs from `activeFrom` up to, not including, `activeUntil`.
struct Seat {
    address validator;
    uint48 activeFrom;
    uint48 activeUntil;
    uint96 bond;
    uint40 releaseTime; // zero while the seat isn't being released
    uint16 numOpen; // cases in which it answers; its bond stays as long
    uint8 numNoShows; // juries that it sat on and didn't vote in
}

/// The draw of seats by a beacon; same arithmetic: protocol/draw.py.
library Seats {
    uint48 internal constant FOREVER = type(uint48).max;
    uint32 internal constant MAX_DRAW_INDEX = 255;

    error NoSeats(uint64 epoch);
    error DrawIndexesUnordered(uint32 index);
    error DrawIndexTooLarge(uint32 index);
    error NotDrawn(uint32 index, uint32 seat);
    error TooManyDrawn(uint256 limit);

    function isActive(Seat storage seat, uint64 epoch) internal view returns (bool) {
        return seat.activeFrom <= epoch && epoch < seat.activeUntil;
    }

    /// How many seats can be drawn for `epoch`. `activeFrom` never falls along the list, so these are a prefix of it,
    /// and a seat bonded later can't shift an earlier draw.
    function countAt(Seat[] storage seats, uint64 epoch) internal view returns (uint256 high) {
        high = seats.length;
        if (high == 0 || seats[high - 1].activeFrom <= epoch) return high;
        uint256 low;
        while (low < high) {
            uint256 middle = (low + high) / 2;
            if (seats[middle].activeFrom <= epoch) low = middle + 1;
            else high = middle;
        }
    }

    /// Raw draw `index` of a round: a seat, active or not.
    function rawDraw(bytes32 beacon, bytes32 id, uint32 round, uint32 index, uint256 numSeats)
        internal
        pure
        returns (uint32)
    {
        return uint32(uint256(keccak256(abi.encode(beacon, id, round, index))) % numSeats);
    }

    /// The seats at the raw draws `indexes` (ascending), each of them checked to be one that the round really draws:
    /// inactive seats, those of excluded owners and further ones of a validator already drawn are passed over.
    function drawn(Seat[] storage list, Draw memory draw, uint32[] calldata indexes)
        internal
        view
        returns (uint32[] memory seats, address[] memory validators)
    {
        uint256 numSeats = countAt(list, draw.epoch);
        if (numSeats == 0) revert NoSeats(draw.epoch);
        _checkIndexes(indexes);
        seats = new uint32[](indexes.length);
        validators = new address[](indexes.length);
        address[] memory seen = new address[](draw.limit);
        uint256 numSeen;
        uint256 k;
        for (uint32 index; k < indexes.length; index++) {
            uint32 number = rawDraw(draw.beacon, draw.id, draw.round, index, numSeats);
            address validator = _eligible(list[number], draw, seen, numSeen);
            if (validator != address(0)) {
                if (numSeen == draw.limit) revert TooManyDrawn(draw.limit);
                seen[numSeen++] = validator;
            }
            if (index != indexes[k]) continue;
            if (validator == address(0)) revert NotDrawn(index, number);
            (seats[k], validators[k]) = (number, validator);
            k++;
        }
    }

    /// The seat's validator, or zero where the rule passes the seat over.
    function _eligible(Seat storage seat, Draw memory draw, address[] memory seen, uint256 numSeen)
        private
        view
        returns (address validator)
    {
        validator = seat.validator;
        if (!isActive(seat, draw.epoch)) return address(0);
        if (_contains(draw.excluded, draw.excluded.length, validator)) return address(0);
        if (_contains(seen, numSeen, validator)) return address(0);
    }

    function _contains(address[] memory list, uint256 count, address wanted) private pure returns (bool) {
        for (uint256 i; i < count; i++) {
            if (list[i] == wanted) return true;
        }
        return false;
    }

    function _checkIndexes(uint32[] calldata indexes) private pure {
        for (uint256 k = 1; k < indexes.length; k++) {
            if (indexes[k] <= indexes[k - 1]) revert DrawIndexesUnordered(indexes[k]);
        }
        if (indexes.length != 0 && indexes[indexes.length - 1] > MAX_DRAW_INDEX) {
            revert DrawIndexTooLarge(indexes[indexes.length - 1]);
        }
    }
}
