"""npm packages that tests need, fetched into the cache."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import deno


def fetch_package(package: str, home: Path) -> None:
    """Fetch a package `name@version` beside its place, then move it there: half of it is never found."""
    home.mkdir(parents=True, exist_ok=True)
    name, _, version = package.rpartition("@")
    with tempfile.TemporaryDirectory(dir=home) as folder:
        (Path(folder) / "package.json").write_text(json.dumps({"dependencies": {name: version}}), encoding="utf-8")
        done = subprocess.run(
            [deno.find_deno_bin(), "install", "--quiet"], cwd=folder, capture_output=True, timeout=300, check=False
        )
        if done.returncode == 0:
            (Path(folder) / "node_modules").rename(home / "node_modules")
