"""`examples/check_bundle.py` on real bundles, in a Python that has coincurve and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from protocol.canonical import canonical_json, hex0x, keccak256, sha256
from protocol.merkle.history import event_leaf_hash_of
from tests.integration.conftest import ON_ONE_NODE
from tests.integration.tampered import Document, flipped, paths
from tests.integration.test_audit import ELSEWHERE, History, history
from tests.integration.test_tampered import COURT, NOTHING, bundles, head_flag
from verifier.audit.bundle.block import prove_block

__all__ = ["bundles", "history"]

pytestmark = [ON_ONE_NODE, pytest.mark.usefixtures("local_chain")]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "check_bundle.py"
SEEN = (*NOTHING, "chain.heads.4.root", "chain.contracts.ledger", "chain.chain_id")
ELSEWHERE_NAMED = {"file": "log event", "verdicts.0.draw": "verdicts", "verdicts.0.verdict.message.round": "verdicts"}
"""Steps that say ✗ in place of those that the script doesn't take: the log says the same."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from with coincurve in it, and what it is linked with."""
    folder = tmp_path_factory.mktemp("bare")
    for name in ("coincurve", "_cffi_backend"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        found = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        (folder / found.name).symlink_to(found)
    return folder


class Script:
    """The script on a document: exit code and what it prints."""

    def __init__(self, bare: Path, file: Path) -> None:
        self._bare = bare
        self._file = file

    def check(self, document: object, *flags: str) -> tuple[int, str]:
        self._file.write_text(document if isinstance(document, str) else json.dumps(document))
        found = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _argv(self._bare), str(SCRIPT), str(self._file), *flags],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"},
            cwd=self._bare,
        )
        return found.returncode, found.stdout + found.stderr


def _argv(folder: Path) -> str:
    return (
        f"import runpy, sys; sys.path.insert(0, {str(folder)!r}); sys.argv.pop(0); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )


@pytest.fixture
def script(bare: Path, tmp_path: Path) -> Script:
    return Script(bare, tmp_path / "bundle.json")


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_bundle", SCRIPT)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def failing(module: ModuleType, document: Document) -> set[str]:
    """The steps that say ✗."""
    bundle = module.Bundle(document)
    return {name for name, step in module.STEPS.items() if module.take(bundle, name, step) == "✗"}


def test_it_imports_the_standard_library_and_coincurve() -> None:
    tree = ast.parse(SCRIPT.read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} - sys.stdlib_module_names == {"coincurve"}


def test_a_bundle_that_holds(history: History, bundles: dict[str, Document], script: Script) -> None:
    for submission_id, document in bundles.items():
        code, printed = script.check(document, "--submission", submission_id)
        assert code == 0 and "consistent, not anchored" in printed and "✗" not in printed
        code, printed = script.check(document, "--trusted-head", head_flag(document))
        assert code == 0 and "ok (anchored: head " in printed
    assert "✓ payment" in script.check(bundles[history.paid])[1]


def test_a_bundle_of_another_submission_or_under_another_head(
    history: History, bundles: dict[str, Document], script: Script
) -> None:
    paid, slashed = bundles[history.paid], bundles[history.slashed]
    assert script.check(paid, "--submission", history.slashed)[0] == 3
    code, printed = script.check(paid, "--trusted-head", head_flag(paid)[:-64] + "7" * 64)
    assert code == 3 and "✗ heads" in printed and "consistent" not in printed
    assert script.check(paid | {"received": slashed["received"]})[0] == 3
    assert script.check(paid | {"verdicts": paid["verdicts"] * 2})[0] == 3


def test_evidence_that_is_newer_than_the_trusted_head_is_not_anchored(
    history: History, bundles: dict[str, Document], script: Script
) -> None:
    """Whoever knows the log could have gone on with it as he likes."""
    paid = bundles[history.paid]
    first = paid["chain"]["heads"][0]
    code, printed = script.check(paid, "--trusted-head", f"{first['epoch']}:{first['size']}:{first['root']}")
    assert code == 0 and "· heads" in printed and printed.endswith("\nconsistent, not anchored\n")


@pytest.mark.parametrize("value", ["\x1b[2Jok (anchored)", "\n✓ payment", "\ud800", "\u009b2J", "y" * 99_999])
def test_nothing_in_a_bundle_steers_a_terminal(
    value: str, history: History, bundles: dict[str, Document], script: Script
) -> None:
    paid = bundles[history.paid]
    code, printed = script.check(paid | {"chain": paid["chain"] | {"pool_id": value}})
    assert code == 3 and printed.endswith("failed\n") and "✗ lease" in printed
    assert all(line.isprintable() and len(line) < 600 for line in printed.splitlines())


def test_a_provider_that_is_paid_twice(history: History, bundles: dict[str, Document], module: ModuleType) -> None:
    paid = bundles[history.paid]
    payments = paid["settled"]["entry"]["event"]["data"]["payments"]
    account = next(one for one in payments if one[0] == paid["chain"]["provider"])
    assert "payment" not in failing(module, paying(paid, payments))
    assert "payment" in failing(module, paying(paid, [[account[0], "1000000"], *payments]))


def paying(document: Document, payments: list[list[str]]) -> Document:
    """The document whose settling pays this, as a coordinator would have logged it."""
    entry = document["settled"]["entry"]
    event = entry["event"] | {"data": entry["event"]["data"] | {"payments": payments}}
    event_hash = hex0x(sha256(canonical_json(event)))
    hashes = {"event_hash": event_hash, "leaf_hash": event_leaf_hash_of(entry["subject"], event_hash)}
    return document | {"settled": document["settled"] | {"entry": entry | hashes | {"event": event}}}


def test_a_bundle_that_would_take_hours_is_not_begun(
    history: History, bundles: dict[str, Document], script: Script
) -> None:
    paid = bundles[history.paid]
    code, printed = script.check(paid | {"verdicts": paid["verdicts"] * 2_000})
    assert code == 2 and "too much beside the file" in printed


def test_what_is_no_bundle(history: History, bundles: dict[str, Document], script: Script) -> None:
    paid = bundles[history.paid]
    for document in ("", "{}", "[]", "7", "[" * 100_000, json.dumps(paid)[:-9], flipped(paid, "task.schema_version")):
        assert script.check(document)[0] == 2
    assert script.check(paid, "--trusted-head", "1:2")[0] == 2
    assert script.check(paid, "--trusted-block", "1:2")[0] == 2
    twice = json.dumps(paid).replace('"schema_version": 1', '"schema_version": 1, "chain": 7', 1)
    for document, why in (
        ("{}", "no file"),
        ('{"file": ""}', "schema version"),
        ("[]", "JSON object"),
        (twice, "twice"),
    ):
        assert why in script.check(document)[1].partition("bundle.json: ")[2]
    lacking = {name: value for name, value in paid.items() if name != "task"}
    assert "it lacks 'task'" in script.check(lacking)[1]
    assert "too large" in script.check('{"file": [' + "[]," * (1 << 20) + "[]]}")[1]


def test_a_bundle_that_leads_to_a_trusted_block(history: History, bundles: dict[str, Document], script: Script) -> None:
    contracts, paid = history.world.contracts, bundles[history.paid]
    proof, _ = prove_block(contracts, history.world.pool_id, epoch=paid["chain"]["heads"][-1]["epoch"])
    led = paid | {"block": proof.model_dump(mode="json")}
    head = contracts.client.head()
    trusted = ("--trusted-block", f"{head.number}:{head.block_hash}")
    code, printed = script.check(led, *trusted)
    assert code == 0 and f"ok (anchored: block {head.number}:{head.block_hash}; " in printed
    assert script.check(paid, *trusted)[0] == 3
    assert script.check(led, *trusted, "--trusted-head", head_flag(paid))[0] == 2
    assert script.check(led, "--trusted-block", f"{head.number + 1}:{head.block_hash}")[0] == 3
    for path in paths({"block": led["block"]}):
        code, printed = script.check(flipped(led, path), *trusted)
        assert code == 3 and "✗ heads" in printed, path


@pytest.mark.parametrize("path", ["submission.signature", "verdicts.0.salt", "links.0.path.0", "earnings.path.0"])
def test_a_flipped_bit(path: str, history: History, bundles: dict[str, Document], script: Script) -> None:
    code, printed = script.check(flipped(bundles[history.paid], path))
    assert code == 3 and f"✗ {NOTHING[path]} " in printed and printed.endswith("failed\n")


def test_each_value_that_verify_sees_without_a_chain_is_seen(
    history: History, bundles: dict[str, Document], module: ModuleType
) -> None:
    for path in SEEN:
        steps = failing(module, flipped(bundles[history.paid], path))
        assert steps, path
        expected = ELSEWHERE_NAMED.get(path, NOTHING.get(path, "digest"))
        assert expected in steps or expected == "digest", (path, steps)
    for path in COURT:
        seen = failing(module, flipped(bundles[history.slashed], path))
        assert bool(seen) != path.startswith("chain."), path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_value_but_claims_about_the_chain(
    history: History, bundles: dict[str, Document], module: ModuleType
) -> None:
    document = bundles[history.paid]
    for path in paths(document):
        if not path.startswith(("chain.", "freshness.")) and not path.endswith("schema_version"):
            assert failing(module, flipped(document, path)), path


@pytest.mark.parametrize("value", [None, [], {}, 7, "0x", "é", -1, 2**70, 1e300, [[["0x"]]], "0x" + "00" * 32])
def test_values_of_any_shape_are_answers_and_no_crash(
    value: object,
    history: History,
    bundles: dict[str, Document],
    module: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paid, file = bundles[history.paid], tmp_path / "bundle.json"
    changes = [{name: value} for name in ("received", "verdicts", "settled", "earnings", "links", "file", "rules")]
    changes += [{"chain": paid["chain"] | {name: value}} for name in ("heads", "seats", "provider", "earnings")]
    for change in changes:
        file.write_text(json.dumps(paid | change))
        code = module.main([str(file)])
        assert (code, "✗" in capsys.readouterr().out) in ((0, False), (2, False), (3, True)), change


@pytest.mark.parametrize("length", [0, 1, 32, 64, 135, 136, 137, 271, 272, 1000])
def test_its_keccak(length: int, module: ModuleType) -> None:
    data = bytes(i * 7 % 251 for i in range(length))
    assert module.keccak256(data) == keccak256(data)


def test_its_canonical_json(module: ModuleType) -> None:
    value = {"b": [1.0, 0.1, -2, True, None], "a": {"é": "\u2028", "𝄞": 1, "\uffff": ""}}
    assert module.canonical(value) == canonical_json(value)  # type: ignore[arg-type]
    assert module.raw(ELSEWHERE) == b"\x77" * 32
