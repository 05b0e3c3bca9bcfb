"""The public `shardcast` package in its own Python: serves a file, or downloads it. JSON in, and a line of JSON out.

python theirs.py serve DIR FILE PORT     publishes FILE, says {"version": …}, serves until its input ends
python theirs.py fetch DIR PORT VERSION  says {"seconds": …, "cpu_seconds": …}, its wget processes among them
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path


def serve(folder: str, file: str, port: str) -> None:
    from shardcast import OriginServer

    origin = OriginServer(folder, int(port))
    Path(folder, "data1.bin").write_bytes(b"its clients ask for this first")
    print(json.dumps({"version": origin.broadcast(file)}), flush=True)
    before = time.process_time()
    sys.stdin.read()
    print(json.dumps({"cpu_seconds": time.process_time() - before}), flush=True)


def _copy_package(folder: Path) -> None:
    """Its clients keep a temporary file beside the package: each gets a copy, so that eight may run at once."""
    found = importlib.util.find_spec("shardcast")
    assert found is not None and found.origin is not None
    shutil.copytree(Path(found.origin).parent, folder / "shardcast")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def fetch(folder: str, port: str, version: str) -> None:
    _copy_package(Path(folder).with_name(f"{Path(folder).name}-package"))
    from shardcast import ClientNode

    client = ClientNode([f"http://127.0.0.1:{port}"], folder)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    before, started = os.times(), time.monotonic()
    path = client.download_version(version)
    seconds, after = time.monotonic() - started, os.times()
    assert path is not None
    used = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"seconds": seconds, "cpu_seconds": used, "path": path}), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    {"serve": serve, "fetch": fetch}[sys.argv[1]](*sys.argv[2:])
