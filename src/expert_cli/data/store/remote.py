"""A token store at a URL: the files that it has on a disk, the fingerprint put last. It is fetched whole, used from the disk.

s3://bucket/stores/<first 12 of the key>/train/data-00000.arrow ...  stats.json
s3://bucket/stores/<first 12 of the key>/fingerprint.json             without it there is no store
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expert_cli.data.store.files import FINGERPRINT, names_outside, read_fingerprint, verify_store
from expert_cli.data.store.inspect import StoreState, lock_of
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.files import folder_beside, parse_sealed, remove
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import size_text


def place_of_store(url: str, key: StoreKey) -> StoredFolder:
    """Return where the store of a key lies at a URL of stores."""
    return StoredFolder(url) / key.sha256[:12]


def look_up(place: StoredFolder, key: StoreKey) -> tuple[StoreState, dict[str, Any]]:
    """Say whether the store of a key lies at its place, and return its fingerprint. Raises EnvironmentProblem."""
    if place.info(FINGERPRINT) is None:
        return StoreState("missing", f"no store in {place}"), {}
    try:
        body = parse_sealed(place.read(FINGERPRINT))
        damage = names_outside(body) or ("" if body["key"] == key.sha256 else f"{FINGERPRINT} belongs to another store")
    except (ValueError, KeyError, TypeError):
        damage = f"{FINGERPRINT} is not of its form"
    return (StoreState("damaged", f"{place}: {damage}"), {}) if damage else (StoreState("hit", f"{place} fits"), body)


def fetch(place: StoredFolder, key: StoreKey, folder: Path, report: Reporter) -> StoreState:
    """Bring the store of a key to `folder`, whole and verified, if it lies at its place; return what lies there.

    Raises EnvironmentProblem: the storage, or the disk.
    """
    found, fingerprint = look_up(place, key)
    if found.state != "hit":
        return found
    home, size = folder / key.sha256[:12], sum(file["bytes"] for file in fingerprint["files"].values())
    report.info(f"store     fetching {size_text(size)} of {place}")
    try:
        with folder_beside(home) as beside:
            place.get([*fingerprint["files"], FINGERPRINT], beside)
            verify_store(beside)
            with lock_of(home):
                remove(home)
                beside.rename(home)
    except (InputError, IntegrityError) as error:  # an object is gone, or not what was put
        return StoreState("damaged", f"{place}: {error.message}")
    return found


def put(home: Path, place: StoredFolder, report: Reporter) -> None:
    """Put a whole store at its place; what lay there is no store until all is there. Raises EnvironmentProblem."""
    place.remove(FINGERPRINT)
    place.put(home, [*read_fingerprint(home)["files"]])
    place.put(home, [FINGERPRINT])
    report.info(f"store     put into {place}; a copy stays in {home}")
