"""A node behind a proxy that can be made to fail: an HTTP error, a JSON-RPC error, or nothing at all."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


class FlakyNode:
    """Example: `with FlakyNode(node.url) as flaky: flaky.fail("http", 20); JsonRpc(flaky.url)`."""

    def __init__(self, url: str) -> None:
        self.num_failed = 0
        """Requests that got no answer of the node."""
        self._left = 0
        self._how = ""
        self._released = threading.Event()
        self._upstream = httpx.Client(base_url=url, timeout=30)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, how: str, num_requests: int) -> None:
        """The next requests fail: "http" (status 500), "rpc" (an error as an answer), "silent" (none in time)."""
        self._how, self._left, self.num_failed = how, num_requests, 0

    def __enter__(self) -> FlakyNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._upstream.close()

    def _answer(self, body: bytes) -> tuple[int, bytes] | None:
        if self._left <= 0:
            response = self._upstream.post("/", content=body, headers={"content-type": "application/json"})
            return response.status_code, response.content
        self._left -= 1
        self.num_failed += 1
        if self._how == "silent":
            self._released.wait(5)
            return None
        if self._how == "http":
            return 500, b"try later"
        asked = json.loads(body)
        answers = [_refusal(one) for one in asked] if isinstance(asked, list) else _refusal(asked)
        return 200, json.dumps(answers).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        flaky = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                answer = flaky._answer(self.rfile.read(int(self.headers["content-length"])))
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer[0])
                self.send_header("content-length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        return Handler


def _refusal(request: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "internal error"}}
