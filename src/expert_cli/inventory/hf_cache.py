"""The caches of Hugging Face's libraries as they lie on disk, whichever program filled them.

<HF_HOME>/hub/datasets--org--name/       the hub client's: refs/main, snapshots/<commit>/* (links), blobs/*
<HF_HOME>/datasets/org___name/           the library `datasets`: config/version/hash/{*.arrow, dataset_info.json}

Not by `huggingface_hub.scan_cache_dir` (2.4): a repository or `blobs` that may not be read, or one reference that is no text,
ends its whole scan, models included; of a data set with one link to nothing, or with a reference to no snapshot, it says
nothing; a folder of a snapshot that may not be read and blobs without a link it passes over; nothing bounds its time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from expert_cli.data.saved import saved_json
from expert_cli.utils.filesystem import is_file, subfolders

_HUB_PREFIX = "datasets--"
_TEXTS = frozenset({"README.md", ".gitattributes"})


@dataclass(frozen=True)
class HfCaches:
    """Where the caches are; `home` is what the user named or HF_HOME."""

    home: Path
    hubs: tuple[Path, ...]
    arrows: tuple[Path, ...]

    def hub_datasets(self) -> Iterator[tuple[Path, str, Path]]:
        """Yield (cache, id, folder) of every data set of the hub caches."""
        for cache in self.hubs:
            for folder in subfolders(cache):
                if folder.name.startswith(_HUB_PREFIX):
                    yield cache, folder.name.removeprefix(_HUB_PREFIX).replace("--", "/"), folder

    def arrow_datasets(self) -> Iterator[tuple[Path, str, Path]]:
        """Yield (cache, name, folder) of every data set of the Arrow caches; the name is lower case, see `arrow_name`."""
        for cache in self.arrows:
            for folder in subfolders(cache):
                if not folder.name.startswith((".", "_", _HUB_PREFIX)) and folder.name != "downloads":
                    yield cache, folder.name.replace("___", "/"), folder


def hf_caches(asked: Path | None) -> HfCaches:
    """Return the caches of `asked`, which is like HF_HOME or one of the two caches in it; None: where the libraries look."""
    if asked is not None:
        home = asked.absolute()
        return HfCaches(home, (home / "hub", home), (home / "datasets", *((home,) if home.name == "datasets" else ())))
    # The hub client's own answer: what is listed is then what training reads.
    from huggingface_hub import constants

    home = Path(constants.HF_HOME)
    arrow = os.environ.get("HF_DATASETS_CACHE")
    return HfCaches(home, (Path(constants.HF_HUB_CACHE),), (Path(arrow).expanduser() if arrow else home / "datasets",))


def hub_folder(cache: Path, hub_id: str) -> Path:
    """Return where a hub cache keeps a data set."""
    return cache / (_HUB_PREFIX + hub_id.replace("/", "--"))


def arrow_name(hub_id: str) -> str:
    """Return the name of a hub data set in the Arrow cache: "org/OpenHermes" -> "org/open_hermes" (as datasets.naming does)."""
    organization, slash, name = hub_id.rpartition("/")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return organization + slash + re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()


def snapshot(folder: Path) -> Path | None:
    """Return the snapshot that training reads, the one of refs/main; without that reference the only one there is."""
    try:
        commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = ""
    found = subfolders(folder / "snapshots")
    meant = [path for path in found if commit in ("", path.name)]
    return meant[0] if len(meant) == 1 else None


def holds_data(folder: Path) -> bool:
    """Whether a folder of the hub cache holds more than the texts about the data set; a link to nothing counts as data."""
    try:
        return any(
            path.name not in _TEXTS and (path.is_symlink() or is_file(path))
            for path in (folder / "snapshots").rglob("*")
        )
    except OSError:
        return True


def arrow_rows(folder: Path) -> int | None:
    """Return the rows of a data set in the Arrow cache, as its one build noted them; None for several builds or no note."""
    notes = sorted(folder.glob("*/*/*/dataset_info.json"))
    if len(notes) != 1:
        return None
    try:
        return sum(int(split["num_examples"]) for split in saved_json(notes[0])["splits"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
