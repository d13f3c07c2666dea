"""A server that speaks as much of OpenAI's protocol as an evaluation asks, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request: its path, its Authorization, what it says."""

    path: str
    key: str | None
    body: dict[str, Any]


Reply = tuple[int, Any, dict[str, str]]
"""A status, what is said, and headers."""


def said(text: str, finish: str = "stop") -> Reply:
    """Return the reply that holds an answer, to a chat and to a prompt alike."""
    choice = {"message": {"content": text}, "text": text, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"completion_tokens": 2}}, {}


@contextmanager
def served(reply: Callable[[Asked], Reply]) -> Iterator[tuple[str, list[Asked]]]:
    """Serve; yield the address and what was asked. reply: answers a request."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            one = Asked(self.path, self.headers["Authorization"], body)
            asked.append(one)
            status, told, headers = reply(one)
            content = json.dumps(told).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
