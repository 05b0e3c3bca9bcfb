"""Compiled kernels: when they are used, where their machine code lies, and what is said about compiling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol import kernels

SMALL = """
import sys
from pathlib import Path
from protocol import kernels

@kernels.helper
def twice(value):
    return 2 * value

@kernels.kernel("int64(int64)")
def twice_plus_one(value):
    return twice(value) + 1

assert twice_plus_one(20) == 41
"""


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


def start(file: Path, base: Path) -> subprocess.Popen[str]:
    """A process that compiles or loads the file, with machine code under `base`."""
    environment = {"PYTHONPATH": ":".join(sys.path), "NUMBA_CACHE_DIR": str(base), "PATH": ""}
    command = [sys.executable, "-W", "error", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> str:
    """What it says on standard error, having nothing to say on standard output."""
    out, errors = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, out, errors)
    assert out == ""
    return errors


def run(file: Path, base: Path) -> str:
    return finish(start(file, base))


def test_kernels_are_enabled_unless_the_plain_paths_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    assert kernels.are_enabled()
    monkeypatch.setenv(kernels.VARIABLE, "plain")
    assert not kernels.are_enabled()


def test_the_second_process_loads_what_the_first_compiled(kernel_file: Path, tmp_path: Path) -> None:
    base = tmp_path / "cache"
    assert "kernels.compiling source=small" in run(kernel_file, base)
    assert run(kernel_file, base) == ""


def test_processes_that_compile_at_once_dont_disturb_each_other(kernel_file: Path, tmp_path: Path) -> None:
    for said in [finish(process) for process in [start(kernel_file, tmp_path / "cache") for _ in range(2)]]:
        assert "Error" not in said
    assert run(kernel_file, tmp_path / "cache") == ""
    machine_code = list((tmp_path / "cache").rglob("*.nbc"))
    assert len(machine_code) == 1


def test_a_changed_file_is_compiled_anew(kernel_file: Path, tmp_path: Path) -> None:
    run(kernel_file, tmp_path / "cache")
    kernel_file.write_text(SMALL.replace("+ 1", "+ 3").replace("41", "43"))
    assert "kernels.compiling" in run(kernel_file, tmp_path / "cache")


def test_a_change_in_what_a_file_imports_is_compiled_anew(kernel_file: Path, tmp_path: Path) -> None:
    """Another file's helpers and constants are part of the machine code."""
    shared = tmp_path / "shared.py"
    shared.write_text("TWO = 2\n")
    kernel_file.write_text("from shared import TWO\n" + SMALL.replace("2 *", "TWO *"))
    run(kernel_file, tmp_path / "cache")
    shared.write_text("TWO = 1 + 2\n")  # of another size: Python's own cache goes by that and the second
    kernel_file.write_text(kernel_file.read_text().replace("41", "61"))
    assert "kernels.compiling" in run(kernel_file, tmp_path / "cache")


def test_machine_code_counts_helpers_of_helpers_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    texts = {
        "package/small": "import numpy\nfrom package import helpers\nfrom package.plain import TWO",
        "package/helpers": "import numba\nfrom package.constants import THREE",
        "package/plain": "from package.far import FOUR\nTWO = 2",
        "package/constants": "THREE = 3",
        "package/far": "FOUR = 4",
        "package/numpy": "",
    }
    for name, text in texts.items():
        tmp_path.joinpath(name).with_suffix(".py").write_text(text)
    small = tmp_path / "package" / "small.py"
    assert {file.stem for file in kernels._sources(small)} == {"small", "helpers", "plain", "constants"}
    states = {kernels._state_of(small)}
    for number, name in enumerate(["small", "helpers", "plain", "constants"], 2):
        (tmp_path / "package" / f"{name}.py").write_text(texts[f"package/{name}"] + "\n# changed")
        states.add(kernels._state_of(small))
        assert len(states) == number
    (tmp_path / "package" / "far.py").write_text("FOUR = 5")
    assert kernels._state_of(small) in states


def test_the_kernels_of_this_project_count_the_files_that_they_share() -> None:
    root = Path(kernels.__file__).parent
    names = {file.relative_to(root).as_posix() for file in kernels._sources(root / "engines" / "step_kernel.py")}
    assert names == {
        "engines/decode_kernels.py", "engines/lanes.py", "engines/step_kernel.py", "kernel_arithmetic.py", "kernels.py"
    }  # fmt: skip
    assert root / "sampling.py" in kernels._sources(root / "sampling_kernels.py")


@pytest.mark.parametrize("size", [0, 40])
def test_damaged_machine_code_is_compiled_anew(kernel_file: Path, tmp_path: Path, size: int) -> None:
    """A full disk or a lost power cut the file short."""
    run(kernel_file, tmp_path / "cache")
    (index,) = (tmp_path / "cache").rglob("*.nbi")
    index.write_bytes(index.read_bytes()[:size])
    assert "kernels.damaged" in run(kernel_file, tmp_path / "cache")
    assert run(kernel_file, tmp_path / "cache") == ""


def test_where_nothing_can_be_written_a_process_compiles_for_itself(kernel_file: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert "kept_in=nowhere" in run(kernel_file, blocked)


def test_a_call_with_other_types_is_an_error(tmp_path: Path, kernel_file: Path) -> None:
    kernel_file.write_text(SMALL.replace("(20)", "('20')"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(kernel_file, tmp_path / "cache")
    assert "No matching definition" in failed.value.stderr


def test_the_command_line_and_the_coordinator_dont_load_numba() -> None:
    code = "import sys, protocol.cli, protocol.toploc.strict, protocol.toploc.stream, coordinator.uploads"
    done = subprocess.run([sys.executable, "-c", f"{code}; print('numba' in sys.modules)"], capture_output=True)
    assert done.stdout == b"False\n"
