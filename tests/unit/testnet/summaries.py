"""A summary to print: of a run that did what it should."""

from testnet.arrivals import VersionArrivals
from testnet.summary import Summary

SUMMARY = Summary(
    seed=0,
    steps=12,
    chain="anvil",
    accepted=40,
    rejected=2,
    rejected_by_reason={"toploc_mismatch": 2},
    honest_rejected=0,
    expired=0,
    restarted=[],
    slashed=["0x" + "0a" * 20],
    cheaters=["0x" + "0a" * 20],
    names={"0x" + "0b" * 20: "worker-0", "0x" + "0a" * 20: "worker-1 (wrong-model)"},
    reward_first=0.4,
    reward_last=0.55,
    num_held_back=1_024,
    policy_version=12,
    ledger_root="0x" + "01" * 32,
    credits_paid_wei="1",
    credits_owed_wei="2",
    audit="ok",
    audited=["0x" + "02" * 32],
    trusted_head="7:90:0x" + "01" * 32,
    first_accept_seconds=30.1,
    wall_seconds=200.5,
    versions=(
        VersionArrivals(
            policy_version=1,
            num_workers=2,
            first_seconds=0.4,
            last_seconds=1.2,
            num_by_way={"patches": 2},
            fetched_bytes=20_000,
            saved_bytes=2_000_000,
        ),
    ),
    run_dir="/runs/0001",
    checks={"audit": True, "all steps taken": True},
)
