"""As much of the Hugging Face hub as a download asks, on this machine: a commit, its files, their content."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
from huggingface_hub import constants


@contextmanager
def hub_server(
    patch: pytest.MonkeyPatch, kind: str, name: str, commit: str, files: Mapping[str, bytes]
) -> Iterator[list[str]]:
    """Let the hub hold one repository; yield the paths that it is asked for. kind: "models" or "datasets".

    Names that end in "gated" may not be read, of those that end in "down" the hub has a fault; others there are not.
    """
    asked: list[str] = []
    address, at = f"/api/{kind}/{name}", f"/{name}/resolve/" if kind == "models" else f"/{kind}/{name}/resolve/"

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            asked.append(path)
            file = path.partition("/resolve/")[2].partition("/")[2]
            if path.startswith(f"{address}/tree/"):
                oids = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
                self._send([{"type": "file", "path": n, "size": len(files[n]), "oid": oid} for n, oid in oids.items()])
            elif path.startswith(address):
                self._send({"id": name, "sha": commit, "siblings": [{"rfilename": name} for name in files]})
            elif path.startswith(at) and file in files:
                self._send(files[file])
            elif "/gated" in path:
                self._send({}, 403, "GatedRepo")
            else:
                self._send({}, *((501, "") if "/down" in path else (404, "RepoNotFound")))

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, body: Any, status: int = 200, code: str = "") -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    patch.setattr(constants, "ENDPOINT", endpoint)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(huggingface_hub.hf_api.api, "endpoint", endpoint)
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        huggingface_hub.close_session()
