// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What a pool is created with. Only price, verifyPrice and rulesHash change later (announced), and the two keys.
/// Members are ordered so that what is read together lies in one slot. Amounts are in base units, times in seconds.
struct PoolConfig {
    bytes32 modelHash;
    bytes32 environmentHash;
    bytes32 rulesHash; // of the rules that leases fix (protocol/rules.py)
    bytes32 checkpointKey; // Ed25519 public key of the log's signed checkpoints; zero where none are served
    uint256 slashableMask; // a bit for each reason code that may be slashed; codes below 64 never are
    uint128 price; // per unit
    uint128 verifyPrice; // per verified token
    uint128 minAllotment; // of a node that leases work
    uint128 seatBond; // of every seat, equal
    uint128 appealBond; // in credits
    uint128 challengeBond; // in credits
    uint32 epochMax; // the coordinator commits an epoch at least this often
    uint32 judgePeriod; // from an epoch's commit until its first verdicts are revealed
    uint32 challengeWindow; // after the judge period: no accusation comes later
    uint32 appealPeriod;
    uint32 juryPeriod;
    uint32 retention; // how long evidence is served
    uint32 leaseMax;
    uint8 acceptQuorum;
    uint8 slashQuorum;
    uint8 jurySize;
    uint8 drawLimit; // most seats that one round may draw for one submission
    uint128 bountyCap; // in credits, per case
    uint16 firstSlashBps; // of the allotment
    uint16 laterSlashBps; // zero: doubles with each offence
    uint16 bountyBps; // of the slashed amount
    uint16 reauditBps; // share of accepted submissions that are judged again
    uint16 maxAsync;
    uint48 maxUnits; // of one task
    address coordinator;
    uint32 coordinatorTimeout; // silence after which the pool may do without its coordinator
    uint32 confirmations; // blocks that off-chain parties wait
    address trainer;
    address token; // what the pool pays in; zero on creation stands for Credits
    uint128 coordinatorBond; // in credits; without it nothing is leased. Zero on test chains only
}

/// The keys of a pool that can be handed over.
enum Role {
    Coordinator,
    Trainer,
    Creator
}

/// What an accusation needs to know of a pool.
struct CaseTerms {
    uint32 accusePeriod; // after the epoch's commit: judge period and challenge window
    uint32 appealPeriod;
    uint8 slashQuorum;
    uint8 drawLimit;
    uint16 reauditBps;
    uint16 firstSlashBps;
    uint16 laterSlashBps;
    uint16 bountyBps;
    uint128 bountyCap;
    uint256 slashableMask;
}

/// What a jury needs to know of a pool.
struct JuryTerms {
    uint128 appealBond;
    uint128 challengeBond;
    uint96 seatBond;
    uint32 juryPeriod;
    uint32 challengeWindow;
    uint8 jurySize;
    uint16 firstSlashBps; // a seat's wrong verdict costs this share of its bond
}

/// One draw of seats to check: round `round` of `id` by the beacon of `epoch`.
struct Draw {
    uint64 poolId;
    uint64 epoch;
    bytes32 beacon;
    bytes32 id;
    uint32 round;
    uint8 limit; // most seats that may be drawn
    address[] excluded; // whose seats are passed over: the submission's provider; for a jury all parties
}

/// What a case that was upheld takes from an allotment.
struct SlashOrder {
    uint64 poolId;
    address node;
    bytes32 submissionId;
    uint128 held; // what the case had frozen: the slash never exceeds it
    uint8 offence; // how many cases stood against the node in this pool when this one was opened
    address[] finders; // who share the bounty
}

// The jury's round of any case.
uint32 constant JURY_ROUND = 2;

enum Vote {
    None,
    Uphold,
    Overturn,
    Unavailable // the evidence isn't served
}

struct Juror {
    address validator;
    uint32 seat;
    Vote vote;
    bytes32 commitment;
}

/// A case's jury.
struct Panel {
    uint64 poolId;
    uint64 epoch; // the open one when the jury was summoned: of the seats that are drawn from
    uint64 beaconBlock;
    uint40 commitDeadline; // zero until the jury is seated
    uint40 deadline; // of the seating, then of the votes
    uint8 numCommitted;
    uint8 numRevealed;
    Juror[] jurors; // in drawn order
}
