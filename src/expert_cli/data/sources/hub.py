"""A data set of the hub -> its files in the hub client's cache.

The files are read by our own readers: no builder, no second Arrow copy, no code of the data set. What was downloaded once
is found again without a network, also when another program downloaded it:

    <HF_HUB_CACHE>/datasets--org--name/
        refs/main                  the commit the name stands for
        snapshots/<commit>/...     the files
        trees/<commit>.json        names of all files of the commit (newer clients), which shows what was not downloaded
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from expert_cli._compat import hub_bar
from expert_cli.config.run_config import SourceSpec
from expert_cli.data.located import Located, local_hint
from expert_cli.data.sources.dataset_card import CardConfig, load_configs
from expert_cli.data.sources.folder import names_below
from expert_cli.data.sources.split_files import select_files
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.disk_errors import disk_problem
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.reporter import Bar, Reporter

_HUB_TIMEOUT_S = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


def hub_files(
    spec: SourceSpec, split: str, reporter: Reporter, *, offline: bool, alternatives: Sequence[Path] = ()
) -> Located:
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
        raise InputError(f'"{spec.path}" is neither a file nor the id of a hub data set', local_hint(())) from error
    if why := forbidden_by(asked=offline):
        return _cached(spec, split, f"the network may not be used ({why})", alternatives, reporter)
    try:
        return _downloaded(spec, split, reporter)
    except ExpertError:
        raise
    except Exception as error:  # noqa: BLE001 - the client's transport library, and so its errors, differ by version
        reason = _reason(error)
    found = _cached(spec, split, reason, alternatives, reporter)
    reporter.warning(f"{spec.path}: {reason}; using commit {found.revision[:12]} from the cache")
    return found


def _downloaded(spec: SourceSpec, split: str, reporter: Reporter) -> Located:
    """Download the README first and then only the split's files: other configurations may be a hundred times as big."""
    from huggingface_hub import HfApi

    # Not list_repo_files: it tries five more times, and a machine without a network would wait 23 s.
    listed = HfApi().dataset_info(spec.path, revision=spec.revision or None, timeout=_HUB_TIMEOUT_S).siblings or ()
    names = [entry.rfilename for entry in listed]
    configs: tuple[CardConfig, ...] = ()
    with reporter.progress(f"Fetching {spec.path} from the Hugging Face hub", None, "B") as bar:
        if "README.md" in names:
            configs = load_configs(_fetched(spec, ["README.md"], bar) / "README.md")
        selection = select_files(names, configs, spec.config, split, spec.path)
        folder = _fetched(spec, selection.files, bar)
    return Located(spec, tuple(selection.files_in(folder, spec.path, reporter)), folder.name)


def _fetched(spec: SourceSpec, names: Sequence[str], bar: Bar) -> Path:
    """Download files and return the snapshot's folder. The client's own progress bars are told to `bar`, not drawn."""
    from huggingface_hub import snapshot_download

    # The branch, not its commit, is named: only then the client notes the commit for later runs without a network.
    patterns = [glob.escape(name) for name in names]
    return Path(
        snapshot_download(
            spec.path,
            repo_type="dataset",
            revision=spec.revision or None,
            allow_patterns=patterns,
            tqdm_class=hub_bar(bar.update),
        )
    )


def _cached(spec: SourceSpec, split: str, reason: str, alternatives: Sequence[Path], reporter: Reporter) -> Located:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    name = f"{spec.path}@{spec.revision}" if spec.revision else spec.path

    def problem(what: str) -> EnvironmentProblem:
        return EnvironmentProblem(f'hub data set "{name}": {reason}, and {what}', local_hint(alternatives))

    try:
        folder = Path(
            snapshot_download(
                spec.path,
                repo_type="dataset",
                revision=spec.revision or None,
                local_files_only=True,
                allow_patterns=[],
            )
        )
    except LocalEntryNotFoundError as error:
        raise problem(f"it is not in the cache {constants.HF_HUB_CACHE}") from error
    sizes = _noted_sizes(folder.parents[1] / "trees" / f"{folder.name}.json")
    in_cache, unread = names_below(folder)
    fault = _fault(folder, "README.md", sizes)
    if fault and "README.md" in in_cache:
        raise problem(f"in the cache README.md {fault}")
    configs = load_configs(folder / "README.md")
    selection = select_files({*in_cache, *sizes}, configs, spec.config, split, spec.path, unread)
    faults = [f"{name} {fault}" for name in selection.files if (fault := _fault(folder, name, sizes))]
    if faults:
        files = f'{len(faults)} of {len(selection.files)} files of the split "{split}"'
        raise problem(f"{files} are not whole in the cache: {faults[0]}{', ...' if len(faults) > 1 else ''}")
    if "README.md" in sizes and "README.md" not in in_cache:
        reporter.warning(f"{spec.path}: its README is not in the cache; the files were chosen by their names")
    return Located(spec, tuple(selection.files_in(folder, spec.path, reporter)), folder.name)


def _fault(folder: Path, name: str, sizes: Mapping[str, int]) -> str:
    """What is wrong with a file of the cache, "" if nothing is known to be."""
    path = folder / name
    if not path.is_file():
        return "leads nowhere" if path.is_symlink() else "is not there"
    size = path.stat().st_size
    return f"has {size:,} bytes, not {sizes[name]:,}" if sizes.get(name, size) != size else ""


def _noted_sizes(tree: Path) -> dict[str, int]:
    """The sizes of all files of a commit, as newer clients note them; {} where the note is absent or of another form."""
    try:
        files = json.loads(tree.read_text(encoding="utf-8"))["files"]
        return {str(name): int(entry.get("lfs_size") or entry["size"]) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def refuse_damaged(path: Path, sha256: str) -> None:
    """Compare a file of the hub client's cache with the hash that its blob is named by, where that is one of SHA-256.

    Raises EnvironmentProblem: a download that was cut off, or a disk that lost something.
    """
    blob = path.resolve()
    if blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name) and blob.name != sha256:
        raise EnvironmentProblem(
            f"{path}: damaged in the hub client's cache, its content is not that of {blob.name[:12]}",
            f"Delete {blob} and download the data set again.",
        )


def _reason(error: Exception) -> str:
    """Why the hub gave nothing, in a line; the client's own texts run over many and name request ids."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return "access has to be asked for on its page (hf auth login)"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such data set, or it is private (hf auth login)"
    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision of it"
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        return f"the hub answered {error.response.status_code}"
    if problem := disk_problem(error, "the hub client's cache cannot be written"):
        return problem.message
    return f"the hub cannot be reached ({type(error).__name__})"
