"""The rows of a run that is over: its token store, opened where it was made, verified."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from expert_cli.data.store.documents import Documents
from expert_cli.data.store.files import file_hashes, verify_store


class Turn(NamedTuple):
    """The ids of a row's prompt, and of the first answer to it, which is trained."""

    prompt: list[int]
    answer: list[int]


def open_store(home: Path, split: str) -> Documents | None:
    """Return a split of the token store in `home`; None where it is gone. Raises IntegrityError for a damaged one."""
    if not (home / split).is_dir():
        return None
    verify_store(home, file_hashes(home.parent).sha256)
    return Documents(home / split)


def drawn_turns(home: Path | None, count: int, seed: int) -> list[Turn]:
    """Return `count` training rows of a store, drawn by seed, with what their first answer follows; [] where it is gone.

    Rows that are trained from their first token on have no prompt: they are left out.
    """
    documents = open_store(home, "train") if home else None
    if documents is None:
        return []
    turns = []
    for number in random.Random(seed).sample(range(len(documents)), min(count, len(documents))):  # noqa: S311
        ids, trained = documents.document(number)
        start = int(trained.argmax())
        length = int((~trained[start:]).argmax()) or len(ids) - start
        if start:
            turns.append(Turn(ids[:start].tolist(), ids[start : start + length].tolist()))
    return turns
