"""What a token store is made of, and the key that this gives.

A store is keyed by content alone: the bytes of the source files (of those in object storage the version that the storage
tells, so that nothing is read for the key), which rows and columns of them, tokenizer, template, masking rule, format.
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

from tokenizers import Tokenizer

from expert_cli.config.run_config import DataConfig
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.places import DataFile, StoredFile
from expert_cli.data.rows.asked import Asked
from expert_cli.data.rows.columns import COLUMN_RULE, FIRST_COLUMN_RULE
from expert_cli.data.rows.overlap import digest_of
from expert_cli.data.rows.scan import PIECE_BYTES
from expert_cli.data.schema_prompt.rank import SCHEMA_PROMPT_RULE
from expert_cli.data.sources.hub import refuse_damaged
from expert_cli.data.store.files import FORMAT, FileHashCache
from expert_cli.data.templates.template import Template
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.tokenize.stream import SHARD_RULE
from expert_cli.utils.redaction import redacted
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
        mine = redacted(dict(self.parts))
        names = [name for name in dict.fromkeys([*other, *mine]) if mine.get(name) != other.get(name)]
        return [f"{name}: {change(other.get(name, 'nothing'), mine.get(name, 'nothing'))}" for name in names]


def store_key(
    data: DataConfig,
    located: LocatedData,
    hash_cache: FileHashCache | None,
    *,
    tokenizer: str,
    template: str,
    masking: str,
    columns: str = COLUMN_RULE,
) -> StoreKey:
    """Return the key of the store that this data, tokenizer (its hash) and template (its name and heading) make.

    hash_cache: hashes the data; None: files count by name, size and time of their last change, and nothing is read of them.
    masking: the rule of `Template.masking`. columns: the rule by which columns are recognized; the first one is no part of the
    key, so that stores from before it had a number are found.
    """
    digest = partial(_content_of, hash_cache) if hash_cache else _stamp
    mapping = {name: value for name, value in asdict(data.mapping).items() if value}
    parts = {
        "format": str(FORMAT),
        "train data": _content(located.train, digest),
        "train rows": json.dumps([_rows(source, data) for source in located.train]),
        "validation data": _content(located.validation, digest),
        "validation rows": json.dumps([_rows(source, data) for source in located.validation]),
        "split": json.dumps([data.validation_share, data.seed]) if data.validation_share else "none",
        "filters": json.dumps(asdict(data.filters)),
        "tokenizer": tokenizer,
        "template": template,
        "mapping": json.dumps(mapping),
        "masking": f"{masking}, {TrainedTurns.of(data)}",
    }
    if data.schema_prompt:
        files = [[path.name, digest(path)] for path in data.schema_prompt.files()]
        shown = replace(data.schema_prompt, databases=data.schema_prompt.database_column)
        settings = [SCHEMA_PROMPT_RULE, asdict(shown)]
        parts["schema prompt"] = json.dumps(settings)
        parts["databases"] = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    if columns != FIRST_COLUMN_RULE:
        parts["columns"] = columns
    return StoreKey(tuple(parts.items()))


def _content_of(hash_cache: FileHashCache, file: DataFile) -> str:
    found = hash_cache.content(file)
    if not isinstance(file, StoredFile):
        refuse_damaged(file, found)
    return found


def _stamp(path: DataFile) -> str:
    if isinstance(path, StoredFile):
        return f"{path.name} {path.content}"
    facts, blob = path.stat(), path.resolve()
    # A file of the hub client's cache is named by its content; its time is that of the download.
    when = blob.name if blob.parent.name == "blobs" else str(facts.st_mtime_ns)
    return f"{path.name} {facts.st_size} {when}"


def _content(sources: Sequence[Located], digest: Callable[[DataFile], str]) -> str:
    hashes = [[source.revision, *map(digest, source.files)] for source in sources]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def _rows(source: Located, data: DataConfig) -> list[Any]:
    """Which rows of a source are taken; the seed counts only where a weight or a share draws rows."""
    spec = source.spec
    drawn = spec.share or spec.max_rows or spec.weight != int(spec.weight)
    share = [spec.share] if spec.share else []  # what is not written is no part of the key, as in stores from before it
    most = [{"max_rows": spec.max_rows, "repeat": spec.repeat}] if spec.max_rows or spec.repeat > 1 else []
    return [spec.split, spec.weight, data.seed if drawn else None, *share, *most]


class HashedTokenizer(Protocol):
    """A tokenizer and the hash of all that its ids depend on."""

    @property
    def backend(self) -> Tokenizer:
        """The tokenizer."""

    @property
    def sha256(self) -> str:
        """Its hash."""


@dataclass(frozen=True)
class StoreInputs:
    """What a store is made of, found on this machine: the data files, the tokenizer, the template.

    kind: what the rows of the data files are. hashes: those of files that were read already. cases: what an evaluation asks,
    which is looked for in the rows that train; no part of the key.
    """

    located: LocatedData
    tokenizer: HashedTokenizer
    template: Template
    kind: str
    hashes: FileHashCache
    cases: Asked = field(default_factory=Asked, kw_only=True)

    def key(self, data: DataConfig) -> StoreKey:
        """Return the key that these inputs give now. Raises IntegrityError: a file of the hub is not the one it was."""
        return self._key(data, self.hashes)

    def plan(self, data: DataConfig) -> StoreKey:
        """Return what a store's build is made of, without reading the data: of its files name, size and time of last change."""
        parts = self._key(data, None).parts
        cut = f"{SHARD_RULE}, {PIECE_BYTES}"
        return StoreKey((*parts, ("cases", digest_of(self.cases)), ("cut", cut)))

    def _key(self, data: DataConfig, hash_cache: FileHashCache | None) -> StoreKey:
        masking = self.template.masking(self.kind)
        made_by = {"tokenizer": self.tokenizer.sha256, "template": self.template.fingerprint, "masking": masking}
        return store_key(data, self.located, hash_cache, **made_by)
