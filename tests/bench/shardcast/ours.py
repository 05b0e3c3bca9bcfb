"""Our side of the comparison with the public package: the same two commands, the same lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.line import weights_client
from protocol.shardcast.origin import publish
from protocol.wire import WeightsRelease


def serve_here(folder: str, file: str, port: str) -> None:
    with FileServer(Path(folder), ("127.0.0.1", int(port))):
        manifest = publish(Path(file).parent, Path(folder), 1, 0)
        print(json.dumps({"version": manifest.manifest_hash}), flush=True)
        before = time.process_time()
        sys.stdin.read()
        print(json.dumps({"cpu_seconds": time.process_time() - before}), flush=True)


def fetch_here(folder: str, port: str, version: str) -> None:
    release = WeightsRelease(pool_id=1, policy_version=0, manifest_hash=version)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    before, started = os.times(), time.monotonic()
    with weights_client() as http:
        fetched = fetch(http, [f"http://127.0.0.1:{port}"], release, Path(folder))
    seconds, after = time.monotonic() - started, os.times()
    used = sum(after[:4]) - sum(before[:4])
    path = str(fetched.folder / "model.safetensors")
    print(json.dumps({"seconds": seconds, "cpu_seconds": used, "path": path}), flush=True)


if __name__ == "__main__":
    {"serve": serve_here, "fetch": fetch_here}[sys.argv[1]](*sys.argv[2:])
