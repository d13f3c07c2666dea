"""A real S3 server (moto's) in a thread of this process, whose door can be closed: what it holds outlives that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Handler(WSGIRequestHandler):
    """Says nothing, and notes its connection."""

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)  # type: ignore[attr-defined]

    def log(self, *_: Any, **__: Any) -> None:
        """Write no line."""


class Door:
    """Where the server is reached. requests: the first line of every request that came, in order."""

    def __init__(self) -> None:
        """Open on a port of its own."""
        self.application = DomainDispatcherApplication(create_backend_app)
        self.requests: list[str] = []
        self.port = 0
        self.open()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']}")
        return self.application(environ, start)  # type: ignore[no-any-return]

    def open(self) -> None:
        """Let connections in, on the port that it had."""
        self._server: Any = make_server("127.0.0.1", self.port, self._answer, threaded=True, request_handler=Handler)
        self._server.connections, self.is_open = [], True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """End all connections and let none in."""
        self.is_open = False
        self._server.shutdown()
        self._server.server_close()
        for connection in self._server.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class S3Server:
    """`environment` is what a process needs to use it."""

    def __init__(self) -> None:
        """Open its door."""
        self.door = Door()

    @property
    def environment(self) -> dict[str, str]:
        """Where it is, and a key."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.door.port}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "its-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def empty(self, bucket: str) -> str:
        """Forget everything, open the door, make a bucket and return its URL."""
        import s3fs

        if not self.door.is_open:  # else somebody might take the port meanwhile
            self.door.open()
        self._ask("reset")
        self._ask("reset-auth", b"Infinity")
        s3fs.S3FileSystem(endpoint_url=self.environment["AWS_ENDPOINT_URL"], use_listings_cache=False).mkdir(bucket)
        self.door.requests.clear()
        return f"s3://{bucket}"

    def deny(self) -> None:
        """Let no key do anything from now on."""
        self._ask("reset-auth", b"0")

    def _ask(self, what: str, body: bytes = b"") -> None:
        connection = HTTPConnection("127.0.0.1", self.door.port, timeout=10)
        connection.request("POST", f"/moto-api/{what}", body)
        assert connection.getresponse().status == 200
        connection.close()


def write(url: str, content: bytes) -> None:
    """Write an object, past this tool."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, use_listings_cache=False)
    system.pipe_file(path, content)
