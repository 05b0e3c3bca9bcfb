"""What any client has to do at least, and nothing else: take a file from a socket, hash it once, write it once.

No HTTP, no manifest, no shards, no threads: the kernel's `sendfile`, a megabyte at a time from the socket, BLAKE3 while
it is in the core's cache, and the write. The same two commands and lines of JSON as the sides that are compared.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from blake3 import blake3

PIECE_BYTES = 1 << 20


def serve(folder: str, file: str, port: str) -> None:
    with socket.create_server(("127.0.0.1", int(port)), backlog=64) as server:
        threading.Thread(target=_send_to_all, args=(server, file), daemon=True).start()
        print(json.dumps({"version": str(Path(file).stat().st_size)}), flush=True)
        before = time.process_time()
        sys.stdin.read()
        print(json.dumps({"cpu_seconds": time.process_time() - before}), flush=True)


def _send_to_all(server: socket.socket, file: str) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_send, args=(connection, file), daemon=True).start()


def _send(connection: socket.socket, file: str) -> None:
    with connection, Path(file).open("rb") as data:
        connection.sendfile(data)


def fetch(folder: str, port: str, version: str) -> None:
    Path(folder).mkdir()
    path, left = Path(folder) / "file", int(version)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    before, started = os.times(), time.monotonic()
    hasher, buffer = blake3(), memoryview(bytearray(PIECE_BYTES))
    with socket.create_connection(("127.0.0.1", int(port))) as line, path.open("wb", buffering=0) as out:
        while left and (num_bytes := line.recv_into(buffer, min(left, PIECE_BYTES), socket.MSG_WAITALL)):
            hasher.update(buffer[:num_bytes])
            out.write(buffer[:num_bytes])
            left -= num_bytes
    hasher.digest()
    seconds, after = time.monotonic() - started, os.times()
    used = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"seconds": seconds, "cpu_seconds": used, "path": str(path)}), flush=True)


if __name__ == "__main__":
    {"serve": serve, "fetch": fetch}[sys.argv[1]](*sys.argv[2:])
