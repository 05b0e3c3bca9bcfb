"""What runs within the sandbox: waits for a job, gives up what it has, and becomes the program.

It is mounted as a file and started by itself; nothing of proofpool is there to import. It keeps no secret and judges
nothing: the program that it runs may do with it what it likes.

In, on descriptor `sys.argv[1]`: one JSON document {"code", "call": null or {"name", "arguments"}, "limits"}. Out, on
`sys.argv[2]`: "R" once it is warm, then what a call returned as JSON. Standard input and output are the program's own.
"""

from __future__ import annotations

import _thread
import bisect
import collections
import functools
import heapq
import itertools
import json
import math
import os
import random
import re
import resource
import string
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes milliseconds that most answers don't need
    from typing import Any

READY = b"R"
STACK_BYTES, THREAD_STACK_BYTES = 64 << 20, 8 << 20


def main() -> None:
    sys.path[:] = [folder for folder in sys.path if folder.startswith("/python/lib")]
    job_fd, result_fd = int(sys.argv[1]), int(sys.argv[2])
    _close_all_but(2, job_fd, result_fd)
    os.write(result_fd, READY)
    with os.fdopen(job_fd, "rb") as file:
        content = file.read()
    if not content:
        os._exit(0)  # nobody needs it any more
    job = json.loads(content)
    del content
    _limit(job["limits"])
    _thread.stack_size(THREAD_STACK_BYTES)
    random.seed(0)
    sys.set_int_max_str_digits(0)
    sys.argv[:] = ["answer.py"]
    if job["call"] is None:
        os.close(result_fd)
        _run(job["code"], "__main__")
    else:
        _call(job, result_fd)


def _close_all_but(*kept: int) -> None:
    ends = [*sorted(kept)[1:], 1 << 16]
    for descriptor, end in zip(sorted(kept), ends, strict=True):
        os.closerange(descriptor + 1, end)


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    soft = STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_STACK, (soft, soft))


def _run(code: str, name: str) -> dict[str, Any]:
    """The program's names, after it ran as the module `name`."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(code, "answer.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _call(job: dict[str, Any], result_fd: int) -> None:
    import typing

    header: dict[str, Any] = {name: getattr(typing, name) for name in typing.__all__ if not hasattr(re, name)}
    for module in (bisect, collections, functools, heapq, itertools, math, random, re, string, typing):
        header[module.__name__] = module
    for module in (collections, functools, heapq, itertools, bisect):
        header.update({key: getattr(module, key) for key in getattr(module, "__all__", dir(module)) if key[0] != "_"})
    answer = types.ModuleType("answer")
    answer.__dict__.update(header)
    sys.modules["answer"] = answer
    exec(compile(job["code"], "answer.py", "exec", dont_inherit=True), answer.__dict__)
    value = _function(answer.__dict__, job["call"]["name"])(*job["call"]["arguments"])
    sys.stdout.flush()
    data = json.dumps(value).encode()
    while data:
        data = data[os.write(result_fd, data) :]
    os._exit(0)  # whatever thread of it is still busy


def _function(names: dict[str, Any], name: str) -> Any:
    """A function of the program, or a method of its class `Solution`."""
    if "." in name:
        owner, name = name.split(".", 1)
        return getattr(names[owner](), name)
    if name not in names and "Solution" in names:
        return getattr(names["Solution"](), name)
    return names[name]


if __name__ == "__main__":
    main()
