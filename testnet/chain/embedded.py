"""A local chain where anvil is not to be had: py-evm behind a small JSON-RPC server, as a process of its own.

    python -m testnet.chain.embedded --port 8545 --block-time 1

In: HTTP POST with JSON-RPC, single or batched, on the loopback interface. Out: answers in anvil's format.
Prints one line `listening on http://127.0.0.1:PORT` on stdout when it can be used (port 0: a free one).
It ends on SIGTERM, or with the process that started it; nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from protocol.canonical import from_hex0x
from protocol.clock import SystemClock
from testnet.chain.evm import EmbeddedChain
from testnet.chain.genesis import BALANCE_WEI, CHAIN_ID, NUM_ACCOUNTS, dev_signers
from testnet.chain.mempool import Refused
from testnet.chain.methods import Methods
from testnet.chain.producer import Producer
from testnet.child import die_with_parent

MAX_BODY_BYTES = 16 * 1024 * 1024


class NodeServer(ThreadingHTTPServer):
    """The HTTP side: one thread a connection, one request at a time on the chain."""

    daemon_threads = True

    def __init__(self, port: int, methods: Methods, lock: threading.Lock) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self._methods = methods
        self._lock = lock

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, body: bytes) -> Any:
        """The JSON of a single answer or of a batch's."""
        try:
            request = json.loads(body)
        except ValueError as error:
            return _error(None, Refused(f"parse error: {error}", -32700))
        if isinstance(request, list):
            return [self._answer_one(one) for one in request]
        return self._answer_one(request)

    def _answer_one(self, request: Any) -> dict[str, Any]:
        if not isinstance(request, dict) or not isinstance(request.get("params", []), list):
            return _error(None, Refused("invalid request", -32600))
        try:
            with self._lock:
                result = self._methods.answer(str(request.get("method")), request.get("params", []))
        except Refused as refused:
            return _error(request.get("id"), refused)
        return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer waits 40 ms for the peer's acknowledgement
    server: NodeServer

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if not 0 < length <= MAX_BODY_BYTES:
            self.send_error(413 if length else 411)
            return
        body = json.dumps(self.server.answer(self.rfile.read(length))).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No line a request: a run makes thousands."""


def _error(request_id: Any, refused: Refused) -> dict[str, Any]:
    error: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.data is not None:
        error["data"] = refused.data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def serve(port: int, block_seconds: float, num_accounts: int, chain_id: int) -> None:
    """Run the node until SIGTERM or SIGINT."""
    clock, stop = SystemClock(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    balances = {from_hex0x(signer.address): BALANCE_WEI for signer in dev_signers(num_accounts)}
    chain = EmbeddedChain(chain_id, balances, int(clock.now()))
    producer = Producer(chain, clock, block_seconds)
    server = NodeServer(port, Methods(chain, producer), producer.lock)
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    print(f"listening on {server.url}", flush=True)
    threading.Thread(target=producer.run, args=(stop,), name="producer", daemon=True).start()
    stop.wait()
    server.shutdown()
    server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testnet.chain.embedded", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--block-time", type=float, default=0.0, help="seconds; 0 makes a block a transaction")
    parser.add_argument(
        "--accounts", type=int, default=NUM_ACCOUNTS, help="funded accounts of the development mnemonic"
    )
    parser.add_argument("--chain-id", type=int, default=CHAIN_ID)
    options = parser.parse_args()
    die_with_parent()
    serve(options.port, options.block_time, options.accounts, options.chain_id)


if __name__ == "__main__":
    main()
