"""What a run prints at its start: where everything is, and what to do next.

In: a started run. Out: lines for stderr, or a JSON document's worth of the same.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from protocol.signing import checksummed
from testnet.hints import program
from testnet.run import Run


def facts(run: Run) -> dict[str, Any]:
    """The banner's content."""
    return {
        "chain": run.node.name,
        "chain_id": run.genesis.chain_id,
        "chain_url": run.node.url,
        "coordinator_url": run.site.coordinator_url,
        "relay_url": run.site.relay_url,
        "pool_id": run.genesis.pool_id,
        "contracts": asdict(run.genesis.contracts),
        "accounts": {
            "coordinator": run.accounts.coordinator.address,
            "trainer": run.accounts.trainer.address,
            **{p.name: p.node.address for p in run.accounts.providers},
            **{v.name: v.address for v in run.accounts.validators},
        },
        "cheats": {p.name: p.cheat for p in run.accounts.cheaters},
        "run_dir": str(run.run_dir),
    }


def banner(run: Run) -> str:
    """For people. The keys are test keys: anybody can derive them from the seed."""
    found = facts(run)
    lines = [
        "",
        f"  proofpool TESTNET, seed {run.plan.seed}: keys and credits are worthless",
        "",
        f"  chain        {found['chain']}, id {found['chain_id']}, {found['chain_url']}",
        f"  coordinator  {found['coordinator_url']}",
        f"  weights      {found['relay_url']}/versions/0/manifest.json",
        f"  run folder   {found['run_dir']}",
        "",
        *(f"  {name:<12} {checksummed(address)}" for name, address in found["contracts"].items()),
        "",
        *(f"  {name:<12} {checksummed(address)}{_provider(run, name)}" for name, address in found["accounts"].items()),
        "",
        f"  join it      {program()} worker init --provider ADDRESS \\",
        f"                 --coordinator {found['coordinator_url']} --chain {found['chain_url']}",
        f"               ADDRESS is of `{program()} key new provider`; it says what comes next",
        "",
        f"  meanwhile    {program()} trace HASH --coordinator {found['coordinator_url']}",
        f"               tail -f {found['run_dir']}/logs/worker-0.log",
        f"               tail -f {found['run_dir']}/metrics.jsonl",
        "",
    ]
    return "\n".join(lines)


def _provider(run: Run, name: str) -> str:
    """Whom a worker works for, whose the stake and the earnings are, and how it cheats, if it does."""
    found = next((provider for provider in run.accounts.providers if provider.name == name), None)
    if found is None:
        return ""
    return f"  for {checksummed(found.owner.address)}" + (f"  cheats: {found.cheat}" if found.cheat else "")
