"""The packages that judging needs, beyond what training does."""

from __future__ import annotations

from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.machine import has_package


def require_packages(*packages: str, extra: str = "evaluate") -> None:
    """Raise EnvironmentProblem for the first package that is not installed. extra: the one that brings it."""
    for package in packages:
        if not has_package(package):
            hint = f'pip install "expert-cli[{extra}]"'
            raise EnvironmentProblem(f"the package {package} is missing: it runs answers", hint)
