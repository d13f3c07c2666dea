"""The table of what the doctor looks at, in the order in which it is read; what is tried comes last (`probes.py`)."""

from __future__ import annotations

import os
import platform
import struct
import tempfile
from itertools import chain
from pathlib import Path

from expert_cli.doctor import gpus, packages, probes, system
from expert_cli.doctor.check import Check, CheckResult, attempt, run_probes
from expert_cli.evaluation.verifiers.sandbox.node import find_node, find_typescript
from expert_cli.hardware import machine, nvml
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.reporter import Reporter


def check_up(here: Path, report: Reporter, *, deep: bool) -> list[CheckResult]:
    """Make every check for a run started in the folder `here`; the probes, which load torch, come last. deep: slow ones too."""
    facts, tried = look(here), probes.PROBES if deep else probes.QUICK
    answers, lines = chain(map(attempt, facts), run_probes(tried)), []
    with report.progress("checking", None, "checks done") as bar:
        for done, check in enumerate((*facts, *tried)):
            bar.update(done, f"now {check.name}" + (f", up to {check.limit_s:.0f} s" if check.limit_s else ""))
            lines += next(answers, [])
        bar.update(len(facts) + len(tried))
    not_tried = Check("torch.compile", lambda: probes.untried(machine.inspect().device))
    return lines if deep else [*lines, *attempt(not_tried)]


def look(here: Path) -> list[Check]:
    """Return the checks of what is told without being tried, for a run started in the folder `here`."""
    from huggingface_hub import constants

    facts, driver, cards = machine.inspect(), nvml.driver_info(), nvml.sample()
    (needs, of_python), cache = packages.asked_for(), Path(constants.HF_HUB_CACHE)
    places = [
        ("disk, output", here, 5_000_000_000),  # a run with its checkpoints: under 1 GB for the shipped experts
        ("disk, HF cache", cache, 10_000_000_000),  # base models of 0.3 to 8 GB
        ("disk, temp", Path(tempfile.gettempdir()), 2_000_000_000),
    ]
    checks = [
        Check("Python", lambda: system.python(platform.python_version(), of_python, struct.calcsize("P") * 8)),
        Check("system", lambda: system.system(facts)),
        Check("driver", lambda: gpus.check_driver(driver, gpus.has_nvidia_device())),
        Check("torch build", lambda: gpus.torch_build(facts, driver)),
        Check("GPU", lambda: gpus.check_gpus(cards, os.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus)),
        Check("GPU memory", lambda: gpus.memory_in_use(cards, nvml.holders())),
        Check("packages", lambda: packages.versions(needs, packages.tested())),
        Check("extras", lambda: packages.extras(needs)),
        Check(packages.TYPESCRIPT, lambda: packages.typescript(find_node(), find_typescript())),
        Check("disks", lambda: system.disks(places)),
        Check("HF cache", lambda: system.hf_cache(cache)),
        Check("hub", lambda: system.hub_state(forbidden_by(asked=False), constants.ENDPOINT)),
    ]
    # a GPU that the installed torch cannot use comes before everything else
    return sorted(checks, key=lambda check: check.name != "torch build") if facts.first_words else checks
