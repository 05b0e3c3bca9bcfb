"""The process in which math answers are judged: `math-verify` behind walls, a fresh copy of it for each judgement.

    stdin: {"pairs": [[gold, answer], …], "cpu_seconds": 4}  ─▶ fork ─▶ limits ─▶ parse, compare ─▶ one byte
    stdout: {"equal": bool, "cpu_seconds": 0.02, "ended": "done" | "limit" | "fault"}

It is run as a script, knows nothing of proofpool, and ends when its standard input does. A judgement is made in a
fork of a process that has judged nothing: no answer can reach the next one, and what was asked before decides nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import select
import signal
import sys
from typing import Any, NoReturn

MEMORY_BYTES = 1 << 30
OPEN_FILES = 32
LEAST_WALL_SECONDS = 30
WALL_PER_CPU_SECOND = 10
"""A judgement that waits this long for its CPU seconds, or for something else, is ended."""
ATOM = re.compile(
    r"(?:Integer|Float|Rational) *\( *'?[0-9.]{1,2048}(?:[eE][+-]?[0-9]{1,4})?'? *\)"
    r"|Symbol *\( *'[A-Za-z0-9_]{1,64}' *\)"
)
"""What sympy's parser makes of a number or a name, before it evaluates it."""
EQUAL, DIFFERENT, FAULT = b"=", b"!", b"?"


def main() -> None:
    judge = _warm_judge()
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(_judged_apart(judge, asked["pairs"], asked["cpu_seconds"])) + "\n")
        sys.stdout.flush()


def _warm_judge() -> Any:
    """`equal(gold, answer)`, with all that it loads when it is first used loaded."""
    import sympy.parsing.sympy_parser as sympy_parser
    from math_verify import LatexExtractionConfig, parse, verify
    from sympy.core.cache import clear_cache

    logging.disable()
    how = (LatexExtractionConfig(boxed_match_priority=0),)

    def equal(gold: str, answer: str) -> bool:
        sides = [parse(f"\\boxed{{{text}}}", how, parsing_timeout=None) for text in (gold, answer)]
        return bool(verify(*sides, timeout_seconds=None, allow_set_relation_comp=True))

    for gold, answer in (
        ("(x+1)^2", "x^2+2x+1"),
        ("\\{1,2\\}", "2,1"),
        ("[0,1)", "0\\le x<1"),
        ("y=2x", "2x-y=0"),
        ("\\sin 2x", "2\\sin x\\cos x"),
    ):
        equal(gold, answer)
    clear_cache()
    sympy_parser.eval_expr = _only_atoms(sympy_parser.eval_expr)
    return equal


def _only_atoms(evaluate: Any) -> Any:
    """The LaTeX parser builds its expressions itself, but hands numbers to sympy's parser, which evaluates text."""

    def guarded(code: str, *names: Any) -> Any:
        if not ATOM.fullmatch(code.strip()):
            raise ValueError("text isn't evaluated here")
        return evaluate(code, *names)

    return guarded


def _judged_apart(judge: Any, pairs: list[list[str]], cpu_seconds: int) -> dict[str, Any]:
    """One judgement in a process of its own, and how that ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _judge(judge, pairs, cpu_seconds, writer)
    os.close(writer)
    wall_seconds = max(LEAST_WALL_SECONDS, WALL_PER_CPU_SECOND * cpu_seconds)
    told = os.read(reader, 1) if select.select([reader], [], [], wall_seconds)[0] else b""
    os.close(reader)
    os.kill(child, signal.SIGKILL)  # it has said all that it has to say
    _, status, usage = os.wait4(child, 0)
    spent = usage.ru_utime + usage.ru_stime
    is_limit = told == b"" and (spent >= cpu_seconds - 0.5 or os.WTERMSIG(status) == signal.SIGXCPU)
    is_fault = told not in (EQUAL, DIFFERENT) or usage.ru_maxrss * 1024 > MEMORY_BYTES // 2
    ended = "limit" if is_limit else "fault" if is_fault else "done"
    return {"equal": told == EQUAL, "cpu_seconds": spent, "ended": ended}


def _judge(judge: Any, pairs: list[list[str]], cpu_seconds: int, writer: int) -> NoReturn:
    """In the fork: one byte, and the end."""
    told = FAULT
    try:
        _limit(cpu_seconds)
        told = EQUAL if any(judge(gold, answer) for gold, answer in pairs) else DIFFERENT
    except BaseException:  # whatever it is, the process that asked hears that there was something
        told = FAULT
    finally:
        os.write(writer, told)
        os._exit(0)


def _limit(cpu_seconds: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    for kind, most in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
