"""What is declared of a manifest's key beside its type: what stands for it where it is not written, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["applied", "adjusted", "informational", "not_used"]


@dataclass(frozen=True)
class Outcome:
    """What became of a key."""

    status: Status
    effect: str
    reason: str = ""


def applied(effect: str, reason: str = "") -> Outcome:
    """The key does what it says."""
    return Outcome("applied", effect, reason)


def adjusted(effect: str, reason: str) -> Outcome:
    """The key's job is done with another value."""
    return Outcome("adjusted", effect, reason)


def not_used(reason: str) -> Outcome:
    """The key has no effect in this run."""
    return Outcome("not_used", "", reason)


def informational(reason: str) -> Outcome:
    """The key is there for people or other programs."""
    return Outcome("informational", "", reason)


CARD = informational("carried to the model card")
RUNTIME = informational("for the program that loads the expert")


@dataclass(frozen=True)
class Key:
    """A key's declaration; `key` and `always` put one at a field.

    default: what stands for the key where it is not written; None: nothing does, or what other keys and the machine say.
    effect: what a value does: a text for `str.format`, to which the value and all `keys` of the block are known, a text for
    each value, or a function of it. off: the same of a value that is false, 0 or empty. why: the reason of the default, or
    of what is decided where the key is not written. always: what becomes of the key in every run, whatever its value.
    """

    default: Any = None
    effect: str | Mapping[Any, str] | Callable[[Any], str] = ""
    off: str = ""
    why: str = ""
    always: Outcome | None = None

    def effect_of(self, value: Any, keys: object) -> str:
        """Return what a value does. keys: has the value of each key of the block under its name, as a mapping has."""
        if self.off and not value:
            return self.off
        if isinstance(self.effect, str):
            return self.effect.format(value, keys=keys)
        return self.effect[value] if isinstance(self.effect, Mapping) else self.effect(value)

    def __call__(self, schema: dict[str, Any]) -> None:
        """Put the default and its reason into the key's JSON Schema, which pydantic calls its `json_schema_extra` with."""
        if self.default is not None:
            schema["default"] = self.default
        if self.why:
            schema["$comment"] = self.why


def key(default: Any, effect: str | Mapping[Any, str] | Callable[[Any], str], *, off: str = "", why: str = "") -> Any:
    """Return the field of a key that may be left out; None then, and `default` stands for it, by the reason `why`."""
    return Field(default=None, json_schema_extra=Key(default, effect, off, why))


def always(outcome: Outcome) -> Any:
    """Return the field of a key that may be left out, and of which the same becomes in every run."""
    return Field(default=None, json_schema_extra=Key(always=outcome))


def unused(reason: str) -> Any:
    """Return the field of a key that is read, so that manifests which have it go on working, and changes no run."""
    return always(not_used(reason))


def declared(block: type[BaseModel], name: str) -> Key:
    """Return what is declared of a block's key; an empty declaration for one that the block does not know."""
    field = block.model_fields.get(name)
    extra = field.json_schema_extra if field else None
    return extra if isinstance(extra, Key) else Key()


Dtype = Literal["bf16", "fp16", "fp32"]
Quantization = Literal["int4", "int8", "bf16", "fp16", "none"]
AdapterType = Literal["lora", "dora", "rslora"]
Strategy = Literal["no", "steps", "epoch"]
GrammarType = Literal["json", "json-schema", "sql", "sql-postgres", "cypher"]
"""What answers can be held to."""


LARGEST = 2**31 - 1
"""The largest count (steps, rows, tokens, characters): products of two of them fit the 64 bits that arrays count in."""
LARGEST_NUMBER = 1e6
"""The largest number that scales something: far above any use, and finite in fp16's range of exponents times a weight."""

Positive = Annotated[int, Field(gt=0, le=LARGEST)]
NotNegative = Annotated[int, Field(ge=0, le=LARGEST)]
Bytes = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
NotNegativeNumber = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Share = Annotated[float, Field(ge=0, lt=1)]
NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
"""In a path they come of a backslash that is not doubled: "C:\\new" holds a line feed."""
TIME = r"^[1-9][0-9]{0,5}[smh]$"
Text = Annotated[str, Field(min_length=1, pattern=NO_CONTROL)]
LONGEST_NAME = 100
"""Letters of what names a folder: file systems take 255 bytes, and stores and runs add to a name."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NO_CONTROL)]
Modules = Literal["all-linear"] | Annotated[list[Text], Field(min_length=1)]


class Strict(BaseModel):
    """A block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Loose(BaseModel):
    """A block of free-form data: an unknown key is refused only when it is a near miss of a known one."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
