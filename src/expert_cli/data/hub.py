"""A data set of the hub -> its files in the hub client's cache.

The files are read by our own readers: no builder, no second Arrow copy, no code of the data set. What was downloaded once
is found again without a network, also when another program downloaded it:

    <HF_HUB_CACHE>/datasets--org--name/
        refs/main                  the commit the name stands for
        snapshots/<commit>/...     the files
        trees/<commit>.json        names of all files of the commit (newer clients), which shows what was not downloaded
"""

from __future__ import annotations

import errno
import glob
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli._compat import hub_bar
from expert_cli.console import Bar, Reporter
from expert_cli.data.selection import select_files
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.offline import forbidden_by
from expert_cli.runconfig import SourceSpec

_HUB_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class HubFiles:
    """The files of one split in reading order, and the commit they are from."""

    files: tuple[Path, ...]
    revision: str


def hub_files(
    spec: SourceSpec, split: str, reporter: Reporter, *, offline: bool, alternatives: Sequence[Path] = ()
) -> HubFiles:
    """Return the files that hold `split` of a hub data set, downloaded where the network is allowed.

    Without a network the cache serves, with a warning if the network was asked for. `alternatives` are local data files that
    an error offers instead. Raises EnvironmentProblem: not reachable and not (completely) in the cache; InputError: no such
    split or configuration.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(spec.path)
    except HFValidationError as error:
        raise InputError(f'"{spec.path}" is neither a file nor the id of a hub data set', _local_hint(())) from error
    if why := forbidden_by(asked=offline):
        return _cached(spec, split, f"the network may not be used ({why})", alternatives)
    try:
        return _downloaded(spec, split, reporter)
    except ExpertError:
        raise
    except Exception as error:  # noqa: BLE001 - the client's transport library, and so its errors, differ by version
        reason = _reason(error)
    found = _cached(spec, split, reason, alternatives)
    reporter.warn(f"{spec.path}: {reason}; using commit {found.revision[:12]} from the cache")
    return found


def load_card(readme: Path) -> dict[str, Any]:
    """Return the metadata block of a data set's README; {} where there is none. Raises InputError: not valid YAML."""
    from huggingface_hub.repocard import metadata_load

    if not readme.is_file():
        return {}
    try:
        return metadata_load(readme) or {}
    except OSError as error:
        raise EnvironmentProblem(f"{readme}: cannot be read: {error.strerror}") from error
    except Exception as error:
        raise InputError(f"{readme}: its metadata block is not valid YAML") from error


def _downloaded(spec: SourceSpec, split: str, reporter: Reporter) -> HubFiles:
    """Download the README first and then only the split's files: other configurations may be a hundred times as big."""
    from huggingface_hub import HfApi

    # Not list_repo_files: it tries five more times, and a machine without a network would wait 23 s.
    listed = HfApi().dataset_info(spec.path, timeout=_HUB_TIMEOUT_S).siblings or ()
    names = [entry.rfilename for entry in listed]
    card: dict[str, Any] = {}
    with reporter.progress(f"Fetching {spec.path} from the Hugging Face hub", None, "MB") as bar:
        if "README.md" in names:
            card = load_card(_fetched(spec.path, ["README.md"], bar) / "README.md")
        chosen = select_files(names, card, spec.config, split, spec.path)
        folder = _fetched(spec.path, chosen, bar)
    return HubFiles(tuple(folder / name for name in chosen), folder.name)


def _fetched(repo_id: str, names: Sequence[str], bar: Bar) -> Path:
    """Download files and return the snapshot's folder. The client's own progress bars are told to `bar`, not drawn."""
    from huggingface_hub import snapshot_download

    # The branch, not its commit, is named: only then the client notes the commit for later runs without a network.
    patterns = [glob.escape(name) for name in names]
    return Path(snapshot_download(repo_id, repo_type="dataset", allow_patterns=patterns, tqdm_class=hub_bar(bar)))


def _cached(spec: SourceSpec, split: str, reason: str, alternatives: Sequence[Path]) -> HubFiles:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    cache = Path(constants.HF_HUB_CACHE)
    repository = cache / repo_folder_name(repo_id=spec.path, repo_type="dataset")
    reference = repository / "refs" / "main"
    revision = reference.read_text(encoding="utf-8").strip() if reference.is_file() else ""
    folder = repository / "snapshots" / revision
    if not revision or not folder.is_dir():
        raise EnvironmentProblem(
            f'hub data set "{spec.path}": {reason}, and it is not in the cache {cache}', _local_hint(alternatives)
        )
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names |= _listed_names(repository / "trees" / f"{revision}.json")
    chosen = select_files(names, load_card(folder / "README.md"), spec.config, split, spec.path)
    missing = [name for name in chosen if not (folder / name).is_file()]
    if missing:
        raise EnvironmentProblem(
            f'hub data set "{spec.path}": {reason}, and {len(missing)} of {len(chosen)} files of the split "{split}" '
            f"are not in the cache, {missing[0]} first",
            _local_hint(alternatives),
        )
    return HubFiles(tuple(folder / name for name in chosen), revision)


def _listed_names(tree: Path) -> set[str]:
    """The names of all files of a commit, as newer clients note them; none where the note is absent or of another form."""
    try:
        noted = json.loads(tree.read_text(encoding="utf-8"))
        return {str(name) for name in noted["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _reason(error: Exception) -> str:
    """Why the hub gave nothing, in a line; the client's own texts run over many and name request ids."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return "access has to be asked for on its page (hf auth login)"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such data set, or it is private (hf auth login)"
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        return f"the hub answered {error.response.status_code}"
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}:
        return f"the hub client's cache cannot be written ({error.strerror})"
    return f"the hub cannot be reached ({type(error).__name__})"


def _local_hint(alternatives: Sequence[Path]) -> str:
    there = f" On this machine: {', '.join(str(path) for path in alternatives)}." if alternatives else ""
    return f"Give the rows as a local file or folder: --dataset PATH.{there}"
