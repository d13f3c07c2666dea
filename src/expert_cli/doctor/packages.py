"""Installed packages against what this distribution's own metadata asks for, what was tested, and what is known to be bad."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from expert_cli.doctor.check_result import CheckResult

KNOWN_BAD: Mapping[tuple[str, str], str] = {
    (
        "bitsandbytes",
        "0.48.0",
    ): "answers of 8-bit checkpoints are broken (bitsandbytes pull request 1776); 0.48.1 is not",
    ("torch", "2.9.0"): "torch.compile fails on torch.bmm (pytorch issue 165892); 2.9.1 does not",
}
"""(package, version) within the bounds of the metadata, and what is wrong with it."""
DISTRIBUTION = "expert-cli"
Installed = Callable[[str], str | None]


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements() -> list[Requirement]:
    """Return what the distribution asks for, extras included; nothing where it is not installed (run from its source)."""
    try:
        return parse_requirements(importlib.metadata.requires(DISTRIBUTION) or [])
    except importlib.metadata.PackageNotFoundError:
        return []


def parse_requirements(lines: Iterable[str]) -> list[Requirement]:
    """Return those lines that are requirements."""
    found = []
    for line in lines:
        try:
            found.append(Requirement(line.partition(" #")[0].strip()))
        except InvalidRequirement:
            continue
    return found


def tested() -> dict[str, str]:
    """Return {name: version} of what constraints.txt, in the package or above it in a working copy, pins for this Python."""
    package = Path(__file__).parents[1]
    for folder in (package, package.parents[1]):
        if (path := folder / "constraints.txt").is_file():
            rows = parse_requirements(path.read_text(encoding="utf-8").splitlines())
            pins = {canonicalize_name(row.name): next(iter(row.specifier), None) for row in rows if _applies(row, "")}
            return {name: pin.version for name, pin in pins.items() if pin is not None}
    return {}


def versions(
    needs: Iterable[Requirement], pins: Mapping[str, str], version_of: Installed = installed
) -> list[CheckResult]:
    """Judge every package that is always needed; those that are as they should be share one line."""
    lines, fine = [], []
    for need in needs:
        if not _applies(need, ""):
            continue
        line = _judge(need, version_of(need.name), pins.get(canonicalize_name(need.name)))
        if line.state == "ok":
            fine.append(line.found)
        else:
            lines.append(line)
    if fine:
        lines.append(CheckResult("packages", "ok", ", ".join(fine)))
    return lines or [
        CheckResult(
            "packages", "warn", "what is needed is not known: expert-cli runs from its source", "pip install -e ."
        )
    ]


def extras(needs: Iterable[Requirement], version_of: Installed = installed) -> list[CheckResult]:
    """Say for each extra what it lacks; extras are a matter of choice, so nothing here is worse than ok."""
    needs = list(needs)
    names = sorted({str(value) for need in needs for value in _extras_of(need)})
    lines = []
    for name in names:
        mine = [need for need in needs if name in _extras_of(need) and _applies(need, name)]
        lacking = [need.name for need in mine if not _fits(need, version_of(need.name))]
        fix = f'if wanted: pip install "{DISTRIBUTION}[{name}]"' if lacking else ""
        found = (
            f"lacks {', '.join(lacking)}" if lacking else "complete" if mine else "nothing to install on this system"
        )
        lines.append(CheckResult(f"extra [{name}]", "ok", found, fix))
    return lines


def _judge(need: Requirement, version: str | None, pin: str | None) -> CheckResult:
    known = f'pip install "{need.name}=={pin}"' if pin else f'pip install "{need.name}{need.specifier}"'
    if version is None:
        return CheckResult(need.name, "fail", f"not installed; needed: {need.specifier or 'any version'}", known)
    reason = KNOWN_BAD.get((canonicalize_name(need.name), version.partition("+")[0]))
    if reason:
        return CheckResult(need.name, "warn", f"{version}: {reason}", known)
    if _fits(need, version):
        return CheckResult(
            need.name, "ok", f"{need.name} {version}" + (f" (tested: {pin})" if pin and not _same(version, pin) else "")
        )
    if _is_too_new(need, version):
        return CheckResult(need.name, "warn", f"{version} is newer than {need.specifier}, and was never tried", known)
    return CheckResult(need.name, "fail", f"{version} is older than {need.specifier}", known)


def _fits(need: Requirement, version: str | None) -> bool:
    try:
        return version is not None and need.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # a private build names itself as it likes


def _is_too_new(need: Requirement, version: str) -> bool:
    """Whether the version breaks none but upper bounds."""
    lower = [bound for bound in need.specifier if not bound.operator.startswith("<")]
    return all(bound.contains(Version(version), prereleases=True) for bound in lower)


def _same(version: str, pin: str) -> bool:
    return version.partition("+")[0] == pin.partition("+")[0]


def _applies(need: Requirement, extra: str) -> bool:
    environment = {**{key: str(value) for key, value in default_environment().items()}, "extra": extra}
    return need.marker is None or need.marker.evaluate(environment)


def _extras_of(need: Requirement) -> set[str]:
    """Return the extras that a requirement belongs to: those named in its marker."""
    return set(re.findall(r'extra == "([^"]+)"', str(need.marker)))
