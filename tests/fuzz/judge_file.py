"""`python -m tests.fuzz.judge_file`: submissions through a verifier's checks, each in a process of its own.

In: names of folders, a line each, with `file`, `submission.json`, `task.json` and `rules.json`. Out: one JSON line for
each, with the verdict, seconds and the peak memory of the process in MiB; an empty line where the process died.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from protocol.environments.registry import environment_of
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.weights import ModelConfig
from protocol.wire import Signed, Submission, Task
from tests.unit.verifier.verifier_world import BASE_MODEL, BEACON, COORDINATOR, DEADLINE, DOMAIN
from verifier.case import Dossier, Facts, Instruments
from verifier.pipeline import examine


@dataclass(frozen=True)
class Judgement:
    """What a verifier said of a file, and what that took."""

    reason: str | None
    outcome: str
    detail: str
    seconds: float
    peak_mib: int


def judge(folder: Path) -> Judgement:
    rules = Rules.model_validate_json((folder / "rules.json").read_bytes())
    instruments = Instruments(
        environment=environment_of(rules.environment, Tokenizer.load(BASE_MODEL)),
        model_config=ModelConfig.load(BASE_MODEL),
        load_model=_no_model,
        find_twin=lambda node, completions_hash, submission_id: None,
    )
    dossier = Dossier(
        submission=Signed[Submission].model_validate_json((folder / "submission.json").read_bytes()),
        task=Signed[Task].model_validate_json((folder / "task.json").read_bytes()),
        file=(folder / "file").read_bytes(),
        rules=rules,
        facts=Facts(
            domain=DOMAIN,
            coordinator=COORDINATOR.address,
            beacon_hash=BEACON,
            received_time=DEADLINE,
            rules_hashes=frozenset({rules.rules_hash}),
        ),
    )
    began = time.perf_counter()
    finding = examine(dossier, instruments)
    seconds = time.perf_counter() - began
    detail = finding.evidence.checks[-1].detail
    return Judgement(
        finding.reason and finding.reason.value, finding.outcome.name.lower(), detail, seconds, _peak_mib()
    )


def _peak_mib() -> int:
    """The most memory that was in use. `getrusage` would count the process that started this one as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


def _no_model() -> NoReturn:
    raise RuntimeError("no hostile file may get as far as the model")


def serve() -> None:
    """Fork for every folder, so that imports are paid for once."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(asdict(judge(Path(line.rstrip("\n"))))), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            print(flush=True)


if __name__ == "__main__":
    serve()
