"""A real S3 server (moto's) in a process of its own, behind a door that can be closed: what it holds outlives that."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

START_S = 60.0


class Door:
    """Passes connections on to a port of this machine, counts what goes in, and can be closed."""

    def __init__(self, behind: int) -> None:
        """Open on a port of its own."""
        self.behind = behind
        self.requests: list[str] = []
        """The first line of every request that came, in order."""
        self.port = 0
        self._open: set[socket.socket] = set()
        self.open()

    def open(self) -> None:
        """Let connections in, on the port that it had."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """End all connections and let none in."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                came, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(came,), daemon=True).start()

    def _pass(self, came: socket.socket) -> None:
        with came, socket.create_connection(("127.0.0.1", self.behind)) as server:
            both = {came: server, server: came}
            self._open |= set(both)
            with suppress(OSError):
                while True:
                    for ready in select.select(list(both), [], [])[0]:
                        data = ready.recv(1 << 16)
                        if not data:
                            return
                        if ready is came and data.split(b" ", 1)[0] in (b"GET", b"PUT", b"HEAD", b"POST", b"DELETE"):
                            self.requests.append(data.split(b"\r\n", 1)[0].decode("latin-1"))
                        both[ready].sendall(data)
            self._open -= set(both)


class S3Server:
    """moto's S3 server. `environment` is what a process needs to use it."""

    def __init__(self) -> None:
        """Start it, and wait until it answers."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while True:
            try:
                self._ask("reset")
                break
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.1)
        self.door = Door(self.port)

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

    @property
    def files(self) -> Any:
        """The server's objects as an fsspec file system, past the door; for a process that has a key in its environment."""
        import s3fs

        endpoint = f"http://127.0.0.1:{self.port}"
        return s3fs.S3FileSystem(endpoint_url=endpoint, use_listings_cache=False)

    def empty(self, bucket: str) -> str:
        """Forget everything, open the door, make a bucket and return its URL."""
        self._ask("reset")
        self._ask("reset-auth", b"Infinity")
        self.door.close()
        self.door.open()
        self.door.requests.clear()
        self.files.mkdir(bucket)
        return f"s3://{bucket}"

    def deny(self) -> None:
        """Let no key do anything from now on."""
        self._ask("reset-auth", b"0")

    def stop(self) -> None:
        """End it."""
        self.door.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, what: str, body: bytes = b"") -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", f"/moto-api/{what}", body)
            assert connection.getresponse().status == HTTPStatus.OK
        finally:
            connection.close()


def write(url: str, content: bytes) -> None:
    """Write an object, past this tool."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, use_listings_cache=False)
    system.pipe_file(path, content)


@contextmanager
def in_environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for the time of a block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
