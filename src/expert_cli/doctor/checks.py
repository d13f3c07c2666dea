"""All checks in the order in which they are read; each is guarded, so that one that breaks hides no other."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from expert_cli.doctor import disks, packages, system
from expert_cli.doctor.check_result import CheckResult
from expert_cli.doctor.probe_process import run_probes
from expert_cli.doctor.probes import PROBES, QUICK, Probe, untried
from expert_cli.evaluation.verifiers.sandbox.node import find_node, find_typescript
from expert_cli.hardware import machine, nvml
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.reporter import Reporter

Check = Callable[[], "CheckResult | list[CheckResult]"]


def check_up(here: Path, report: Reporter, *, deep: bool) -> list[CheckResult]:
    """Run every check for a run started in the folder `here`; the probes, which load torch, come last. deep: slow ones, too."""
    quick = [*about_the_machine(), *_about_the_surroundings(here)]
    probes = PROBES if deep else QUICK
    lines: list[CheckResult] = []
    with report.progress("checking", None, "checks done") as bar:
        for done, (name, check) in enumerate(quick):
            bar.update(done, f"now {name}")
            lines += guarded(name, check)
        probing = _guarded_probes(probes)
        for done, probe in enumerate(probes, len(quick)):
            bar.update(done, f"now {probe.name}, up to {probe.limit_s:.0f} s")
            lines += next(probing, [])
        bar.update(len(quick) + len(probes))
    device = machine.inspect().device
    return lines if deep else [*lines, *guarded("slow probes", lambda: untried(device))]


def guarded(name: str, check: Check) -> list[CheckResult]:
    """Run one check; if it breaks, that is its line."""
    try:
        found = check()
    except Exception as error:  # noqa: BLE001  the report must go on
        words = f"this check broke: {type(error).__name__}: {error}"
        return [CheckResult(name, "warn", words, "this is a bug in expert-cli: report this line")]
    return found if isinstance(found, list) else [found]


def _guarded_probes(probes: Sequence[Probe]) -> Iterator[list[CheckResult]]:
    try:
        yield from run_probes(probes)
    except OSError as error:
        found = f"no process can be started to try torch: {error}"
        yield [CheckResult("probes", "fail", found, "look at memory and disk space")]


def about_the_machine() -> list[tuple[str, Check]]:
    """Return the checks of what the machine is, by name."""
    facts, driver, cards = machine.inspect(), nvml.driver_info(), nvml.gpus()
    version, needed, bits = platform.python_version(), packages.needed_python(), struct.calcsize("P") * 8
    checks: list[tuple[str, Check]] = [
        ("Python", lambda: system.python(version, needed, bits)),
        ("system", lambda: system.system(facts)),
        ("driver", lambda: system.check_driver(driver, system.has_nvidia_device())),
        ("torch build", lambda: system.torch_build(facts, driver)),
        ("GPU", lambda: system.check_gpus(cards, os.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus)),
        ("GPU memory", lambda: system.memory_in_use(nvml.sample(), nvml.holders())),
    ]
    # a GPU that the installed torch cannot use comes before everything else
    return sorted(checks, key=lambda check: check[0] != "torch build") if facts.first_words else checks


def _about_the_surroundings(here: Path) -> list[tuple[str, Check]]:
    from huggingface_hub import constants

    cache, needs = Path(constants.HF_HUB_CACHE), packages.requirements()
    return [
        ("packages", lambda: packages.versions(needs, packages.tested())),
        ("extras", lambda: packages.extras(needs)),
        (packages.TYPESCRIPT, lambda: packages.typescript(find_node(), find_typescript())),
        ("disks", lambda: disks.disks(disks.places(here, cache))),
        ("HF cache", lambda: disks.hf_cache(cache)),
        ("hub", lambda: disks.hub_state(forbidden_by(asked=False), constants.ENDPOINT)),
    ]
