"""Nothing is fetched from a hub, or run from there, because a package happens to be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAKE = "import pathlib; pathlib.Path({mark!r}).write_text('imported'); get_kernel = lambda *a, **k: None\n"


def imports(tmp_path: Path, code: str) -> bool:
    """Run `code` with a package `kernels` that leaves a mark when it is imported; return whether it did."""
    mark = tmp_path / "mark"
    (tmp_path / "kernels.py").write_text(FAKE.format(mark=str(mark)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment, capture_output=True)
    return mark.exists()


def test_the_fake_package_is_found_without_the_guard(tmp_path: Path) -> None:
    assert imports(tmp_path, "import kernels")


def test_bitsandbytes_does_not_reach_the_hub_kernels(tmp_path: Path) -> None:
    guarded = "from expert_cli._compat import quiet_imports; quiet_imports(); import bitsandbytes; import transformers"
    assert not imports(tmp_path, guarded)
