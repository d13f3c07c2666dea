"""Blocks of a manifest with the effects of their keys; the training block is merged with that of its base model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from pydantic import BaseModel

from expert_cli.errors import InputError, ManifestIssue
from expert_cli.manifest.json_text import Path_
from expert_cli.manifest.key import AdapterType, Outcome, adjusted, applied, declared, not_used
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import Adapter, Base
from expert_cli.manifest.training_config import TrainingConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Block = TypeVar("Block", bound=BaseModel)
Part = TypeVar("Part", bound="DataclassInstance")
Outcomes = Mapping[Path_, Outcome]
"""Effects of keys by their path in a block; a path includes all keys below it."""
Unwritten = tuple[Any, str]
"""The default of a key, and the reason for it."""


class Settings(Generic[Block]):
    """One block as written, and the effect of each of its keys.

    A value goes into the run through `use`, `put` or `block`, which note its effect; `leave` notes why it has none. Defaults
    and effects are declared beside the key. `written` is for looking at one key while deciding about another.
    """

    def __init__(self, written: Block) -> None:
        """Take a block; None in it means "not written"."""
        self.written = written
        always = {name: declared(type(written), name).always for name in type(written).model_fields}
        self.outcomes: dict[Path_, Outcome] = {(name,): outcome for name, outcome in always.items() if outcome}
        self._decided: dict[str, Any] = {}
        self._nested: dict[Path_, Unwritten] = {}

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key, or its default."""
        value = getattr(self.written, key)
        return declared(type(self.written), key).default if value is None else value

    def use(self, key: str) -> Any:
        """Return the value of a key, or its default, and note its effect."""
        return self.put(key, self[key])

    def put(self, key: str, value: Any, effect: str = "", reason: str = "") -> Any:
        """Return the value decided for a key, and note its effect. reason: why it differs from the written value."""
        effect = effect or declared(type(self.written), key).effect_of(value, self)
        self.outcomes[(key,)] = adjusted(effect, reason) if reason else applied(effect)
        self._decided[key] = value
        return value

    def leave(self, reason: str, *keys: str) -> None:
        """Note that keys have no effect in this run."""
        self.outcomes |= {(key,): not_used(reason) for key in keys}

    def unwritten(self) -> dict[Path_, Unwritten]:
        """Return the value and the reason of every decided, unwritten key whose declaration gives a reason."""
        block = type(self.written)
        keys = [key for key in block.model_fields if key in self._decided and getattr(self.written, key) is None]
        told = {key: declared(block, key) for key in keys}
        nested = {path: default for path, default in self._nested.items() if path in self.outcomes}
        return {(key,): (self._as_written(key), its.why) for key, its in told.items() if its.why} | nested

    def _as_written(self, key: str) -> Any:
        """Return a decided value in the type of the key's default, as it would be written."""
        default, decided = declared(type(self.written), key).default, self._decided[key]
        return decided if default is None or type(decided) is type(default) else default

    def nest(self, path: Path_, inner: Settings[Any]) -> None:
        """Note the effects in a block at `path` inside this one."""
        self.outcomes |= {(*path, *key): outcome for key, outcome in inner.outcomes.items()}
        self._nested |= {(*path, *key): default for key, default in inner.unwritten().items()}

    def block(self, kind: type[Part], **decided: Any) -> Part:
        """Return a block of the run: the decided values, and for its other fields the keys of the same names."""
        names = [field.name for field in fields(kind) if field.name not in decided]
        return kind(**decided, **{name: self.use(name) for name in names})


OF_ADAPTERS = {"type": "adapter_type", "r": "rank"}
"""Keys of adapter entries that have another name in `training.config`."""


@dataclass(frozen=True)
class Merged:
    """The merged values and where each came from.

    base: the base model. index: its position in the manifest; None if it is not listed. dropped: keys of `training.config` that
    an option of the command line replaces, with that option.
    """

    loaded: LoadedManifest
    base: Base
    index: int | None
    values: TrainingConfig
    origins: Mapping[str, str]
    dropped: Mapping[str, str]

    @property
    def entry(self) -> Path_:
        """The path of the base model's entry, in either schema."""
        return ("base_model",) if self.loaded.manifest.base_model is not None else ("base_models", self.index or 0)

    def fault(self, key: str, message: str, hint: str = "", *, origin: str = "") -> ManifestIssue:
        """Return an error at the place where a key's value is written. origin: a layer other than the value's own."""
        origin, manifest = origin or self.origins.get(key, ""), self.loaded.manifest
        block: Path_ = (*self.entry, "config") if origin.startswith("base model") else ("training", "config")
        written = manifest.training.config.model_fields_set
        names = {old for old, new in TrainingConfig.old_names.items() if new == key and old in written - {key}}
        if origin == "adapters[0]":
            block = (*(() if manifest.base_model and manifest.adapters else self.entry), "adapters", 0)
            names = {old for old, new in OF_ADAPTERS.items() if new == key}
        return self.loaded.text.fault((*block, next(iter(names), key)), message, hint)


def adapter_block(adapter: Adapter) -> dict[str, Any]:
    """Return the values of an adapter entry under the names that they have in `training.config`."""
    kind = adapter.type if adapter.type in get_args(AdapterType) else None
    named = {"adapter_type": kind, "rank": adapter.r or adapter.rank}
    named |= {name: getattr(adapter, name) for name in ("alpha", "dropout", "target_modules")}
    return {name: value for name, value in named.items() if value is not None}


def read_chat_template(path: Path) -> str:
    """Return the Jinja text of a file. Raises InputError if it is missing, empty, or not text."""
    hint = "name a file of a chat template in jinja, relative to the manifest"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', error)}", hint) from error
    if not text.strip():
        raise InputError(f"{path} is empty", hint)
    return text


def place_of(written: str, folders: Sequence[Path]) -> Path:
    """Return an absolute path: in the first of `folders` that has it, else in the first. Backslashes separate folders."""
    places = [(folder / written.replace("\\", "/")).absolute() for folder in folders]
    return next((place for place in places if place.exists()), places[0])
