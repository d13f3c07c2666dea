"""What a token store is made of, and the key that this gives.

A store is keyed by content alone: the bytes of the source files (of those in object storage the version that the storage
tells, so that nothing is read for the key), which rows and columns of them, tokenizer, template, which turns train, and the
rule by which rows become shards (`STORE_RULE`).
Times, paths, threads and processes are not in the key; neither are sequence length and packing, which are decided when
training starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from expert_cli.config.run_config import DataConfig
from expert_cli.data.overlap import Question
from expert_cli.data.select import FlatMap, local_flat_map
from expert_cli.data.sources import Located, LocatedData, content_of
from expert_cli.data.store.files import STORE_RULE, FileHashCache
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.mask import TrainedTurns
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import change


@dataclass(frozen=True)
class StoreKey:
    """What a store is made of, part by part; `sha256` over all of it names the store."""

    parts: tuple[tuple[str, str], ...]

    @property
    def sha256(self) -> str:
        """The key."""
        return hashlib.sha256(json.dumps(self.parts).encode()).hexdigest()

    def changes(self, other: Mapping[str, str]) -> list[str]:
        """Return one line for every part that differs in `other`, as a store has it: which, from what, to what."""
        mine = {name: redact(value) for name, value in self.parts}
        names = [name for name in dict.fromkeys([*other, *mine]) if mine.get(name) != other.get(name)]
        return [f"{name}: {change(other.get(name, 'nothing'), mine.get(name, 'nothing'))}" for name in names]


def store_key(
    data: DataConfig, located: LocatedData, hash_cache: FileHashCache, *, tokenizer: str, template: str
) -> StoreKey:
    """Return the key of the store that this data, tokenizer (its hash) and template (its name and heading) make."""
    digest = partial(content_of, hashes=hash_cache.sha256)
    mapping = {name: value for name, value in asdict(data.mapping).items() if value}
    parts = {
        "rule": str(STORE_RULE),
        "train data": _content(located.train, digest),
        "train rows": json.dumps([_rows(source, data) for source in located.train]),
        "validation data": _content(located.validation, digest),
        "validation rows": json.dumps([_rows(source, data) for source in located.validation]),
        "split": json.dumps([data.validation_share, data.seed]) if data.validation_share else "none",
        "filters": json.dumps(asdict(data.filters)),
        "tokenizer": tokenizer,
        "template": template,
        "mapping": json.dumps(mapping),
        "trained turns": str(TrainedTurns.of(data)),
    }
    if shown := data.schema_prompt:
        files = [[path.name, hash_cache.sha256(path)] for path in shown.files()]
        parts["schema prompt"] = json.dumps(asdict(replace(shown, databases=shown.database_column)))
        parts["databases"] = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return StoreKey(tuple(parts.items()))


def _content(sources: Sequence[Located], digest: Callable[..., str]) -> str:
    hashes = [[source.revision, *map(digest, source.files)] for source in sources]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def _rows(source: Located, data: DataConfig) -> list[Any]:
    """Which rows of a source are taken; the seed counts only where a weight or a share draws rows."""
    spec = source.spec
    drawn = spec.share or spec.max_rows or spec.weight != int(spec.weight)
    return [spec.split, spec.weight, data.seed if drawn else None, spec.share, spec.max_rows, spec.repeat]


class HashedTokenizer(Protocol):
    """A tokenizer and the hash of all that its ids depend on."""

    @property
    def sha256(self) -> str:
        """Its hash."""


@dataclass(frozen=True)
class StoreInputs:
    """What a store is made of, found on this machine: the data files, the tokenizer, the template.

    hashes: those of files that were read already. No part of the key: cases, what an evaluation asks, looked for in the
    rows that train; flat_map, on which machines rows are looked at and written down.
    """

    located: LocatedData
    tokenizer: HashedTokenizer
    template: Template
    hashes: FileHashCache
    cases: Sequence[Question] = field(default=(), kw_only=True)
    flat_map: FlatMap = field(default=local_flat_map, kw_only=True)

    def key(self, data: DataConfig) -> StoreKey:
        """Return the key that these inputs give now. Raises IntegrityError: a file of the hub is not the one it was."""
        made_by = {"tokenizer": self.tokenizer.sha256, "template": self.template.fingerprint}
        return store_key(data, self.located, self.hashes, **made_by)
