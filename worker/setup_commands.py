"""`proofpool worker init|doctor|bench`: before a worker runs, and when it doesn't. Nothing heavy is imported early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from worker.init import InitReport

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file; environment and flags override it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def doctor(config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Check this node and its machine, each finding with its fix.

    ✓ is well, ! may be, ✗ must be mended. Exit code 1 where something must be, 6 where only registration or stake lack.
    """
    import json
    from dataclasses import asdict

    from protocol.config import load_config
    from protocol.doctor import DoctorReport, print_finding
    from worker.config import WorkerConfig
    from worker.doctor import exit_code, findings

    found = []
    for finding in findings(load_config(WorkerConfig, "worker", config)):
        found.append(finding)
        if not as_json:
            print_finding(finding)
    report = DoctorReport(tuple(found))
    if as_json:
        print(json.dumps(asdict(report)))
    return exit_code(report)


def init(
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", envvar="PROOFPOOL_COORDINATOR_URL", help="The pool's coordinator.")
    ] = None,
    chain: Annotated[
        str | None, typer.Option("--chain", envvar="PROOFPOOL_CHAIN_URL", help="JSON-RPC of a node that you trust.")
    ] = None,
    keystore: Annotated[
        Path | None, typer.Option("--keystore", help="The node's key: a file or a name, made where there is none.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Opens it; else PROOFPOOL_PASSWORD, or it is asked.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="For leases, outbox and weights.")] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="ADDRESS", help="Whom the node works for: writes its consent.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="torch or vllm.")] = "torch",
    out: Annotated[Path, typer.Option("--out", help="The configuration to write.")] = Path("worker.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document; nothing is asked.")] = False,
) -> None:
    """Write a worker's configuration from what its pool says, make the node's key, and say what comes next.

    On a terminal what isn't given is asked for. Nothing is overwritten. The pool's contracts are checked on the chain.
    """
    from protocol.address import parse_address
    from protocol.client import base_url
    from protocol.passwords import choose_password, get_password, is_terminal
    from worker.init import Answers
    from worker.init import init as write

    may_ask, named = is_terminal() and not as_json, _key_file(keystore or Path("node"))
    answers = Answers(
        coordinator_url=base_url(_asked(coordinator, "--coordinator", "the coordinator's URL", may_ask)),
        chain_url=_asked(chain, "--chain", "URL of a node of its chain", may_ask),
        keystore=named,
        password_file=password_file,
        data_dir=data_dir or Path(f"{out.stem}-data"),
        out=out,
        engine=_engine(engine),
        provider=None if provider is None else parse_address(provider, "--provider"),
    )
    ask = get_password if named.exists() else choose_password
    report = write(answers, ask(str(named), password_file, may_ask=may_ask))
    print(report.model_dump_json() if as_json else "\n".join(_report_lines(report)))


def _key_file(named: Path) -> Path:
    """The file, or that of a name in the keys' folder, which is made for it."""
    from protocol.keyring import key_file, keys_folder, make_folder

    if len(named.parts) > 1 or named.exists() or named.suffix == ".json":
        return named
    make_folder(keys_folder())
    return key_file(str(named), keys_folder())


def _report_lines(report: InitReport) -> Iterator[str]:
    from protocol.events import utc

    made = "made" if report.made_key else "found"
    yield f"{report.file}: pool {report.pool_id} on chain {report.chain_id}, Ledger {report.ledger}, code checked"
    yield f"node {report.node}, key {made}: {report.keystore}"
    if report.consent_deadline is not None:
        yield f"{report.consent_file}: good until {utc(report.consent_deadline)}; `worker consent` makes another one"
    yield "next:"
    yield from (f"  {line}" for line in report.next)


def _asked(given: str | None, flag: str, what: str, may_ask: bool) -> str:
    from protocol.errors import UsageError

    if given is not None:
        return given
    if not may_ask:
        raise UsageError(f"{what} isn't named", f"no {flag}, and nobody can be asked", f"give {flag}")
    return str(typer.prompt(what))


def _engine(name: str) -> Literal["torch", "vllm"]:
    from protocol.errors import UsageError

    if name == "torch":
        return "torch"
    if name == "vllm":
        return "vllm"
    raise UsageError("that is no engine", name, "give torch or vllm")


def bench(
    config: ConfigFile = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long new tasks are begun.")] = 30.0,
    model: Annotated[Path | None, typer.Option("--model", help="A folder, in place of the pool's newest.")] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="JSON of rules, in place of the pool's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine in this pool: tokens per second with proofs, and what that would earn in a day.

    The pool's rules, prompts and newest weights, the configured engine. Nothing is leased or handed in.
    """
    import os

    from protocol.config import load_config
    from worker.config import WorkerConfig

    settings = load_config(WorkerConfig, "worker", config)
    # Numeric libraries read this when they are loaded, which comes next.
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.num_threads))
    import torch

    from protocol.clock import SystemClock
    from protocol.engines.registry import make_engine
    from protocol.kernels import warm
    from protocol.progress import Progress
    from worker.bench import Given, bench_lines
    from worker.bench import bench as measure

    torch.set_num_threads(settings.num_threads)
    engine = make_engine(settings.engine, max_batch=settings.max_batch, dtype=settings.dtype, vllm=settings.vllm)
    with Progress("bench, seconds", int(seconds)) as progress:
        progress.doing("kernels")
        warm()
        found = measure(settings, engine, SystemClock(), seconds, progress, Given(rules, model))
    for line in [found.model_dump_json()] if as_json else bench_lines(found):
        print(line)
