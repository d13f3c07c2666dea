"""What forbids the network is told as the hub client, in a process of its own, takes it."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = "import sys; from expert_cli.utils.offline import forbidden_by; print(forbidden_by(asked=len(sys.argv) > 1))"


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"HF_HUB_OFFLINE": "0"}, "", id="switched off"),
        pytest.param({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, "", id="the first decides"),
        pytest.param({"HF_HUB_OFFLINE": "on"}, "the variable HF_HUB_OFFLINE is set (HF_HUB_OFFLINE=on)", id="on"),
        pytest.param(
            {"TRANSFORMERS_OFFLINE": "1"},
            "the variable TRANSFORMERS_OFFLINE is set (TRANSFORMERS_OFFLINE=1)",
            id="older",
        ),
    ],
)
def test_what_forbids_the_network(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for option, first in (([], ""), (["--offline"], "--offline is given")):
        done = subprocess.run([sys.executable, "-c", ASK, *option], capture_output=True, text=True, check=True)
        assert done.stdout == " and ".join(filter(None, (first, told))) + "\n"
