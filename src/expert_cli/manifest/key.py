"""The declaration of a manifest's key beside its type: its default and its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["applied", "adjusted", "informational", "not_used"]


@dataclass(frozen=True)
class Outcome:
    """The effect of a key."""

    status: Status
    effect: str
    reason: str = ""


def applied(effect: str, reason: str = "") -> Outcome:
    """Return the outcome of a key that has its stated effect."""
    return Outcome("applied", effect, reason)


def adjusted(effect: str, reason: str) -> Outcome:
    """Return the outcome of a key that takes effect with another value."""
    return Outcome("adjusted", effect, reason)


def not_used(reason: str) -> Outcome:
    """Return the outcome of a key that has no effect in this run."""
    return Outcome("not_used", "", reason)


def informational(reason: str) -> Outcome:
    """Return the outcome of a key that is information for people or other programs."""
    return Outcome("informational", "", reason)


CARD = informational("carried to the model card")
RUNTIME = informational("for the program that loads the expert")


@dataclass(frozen=True)
class Key:
    """A key's declaration, attached to a field by `key` or `always`.

    default: the value if the key is not written; None: no value, or one that depends on other keys and the machine. effect:
    a text for `str.format` with the value and all `keys` of the block, a text for each value, or a function that returns the
    text. off: the text for false, 0 and empty values. why: the reason of the default or computed value. always: the effect in
    every run, whatever the value.
    """

    default: Any = None
    effect: str | Mapping[Any, str] | Callable[[Any], str] = ""
    off: str = ""
    why: str = ""
    always: Outcome | None = None

    def effect_of(self, value: Any, keys: object) -> str:
        """Return the effect of a value. keys: the values of all keys in the block, by name."""
        if self.off and not value:
            return self.off
        if isinstance(self.effect, str):
            return self.effect.format(value, keys=keys)
        return self.effect[value] if isinstance(self.effect, Mapping) else self.effect(value)

    def __call__(self, schema: dict[str, Any]) -> None:
        """Put default and reason into the key's JSON Schema; pydantic calls this as `json_schema_extra`."""
        if self.default is not None:
            schema["default"] = self.default
        if self.why:
            schema["$comment"] = self.why


def key(default: Any, effect: str | Mapping[Any, str] | Callable[[Any], str], *, off: str = "", why: str = "") -> Any:
    """Return the field of an optional key. default: used if it is not written, with the reason `why`."""
    return Field(default=None, json_schema_extra=Key(default, effect, off, why))


def always(outcome: Outcome) -> Any:
    """Return the field of an optional key that has the same effect in every run."""
    return Field(default=None, json_schema_extra=Key(always=outcome))


def unused(reason: str) -> Any:
    """Return the field of a key that is accepted for old manifests, and has no effect."""
    return always(not_used(reason))


def declared(block: type[BaseModel], name: str) -> Key:
    """Return the declaration of a block's key; an empty one for unknown keys."""
    field = block.model_fields.get(name)
    extra = field.json_schema_extra if field else None
    return extra if isinstance(extra, Key) else Key()


Dtype = Literal["bf16", "fp16", "fp32"]
Quantization = Literal["int4", "int8", "bf16", "fp16", "none"]
AdapterType = Literal["lora", "dora", "rslora"]
Strategy = Literal["no", "steps", "epoch"]
GrammarType = Literal["json", "json-schema", "sql", "sql-postgres", "cypher"]
"""The grammars that answers can be made to follow."""


LARGEST = 2**31 - 1
"""The largest count (steps, rows, tokens, characters): products of two of them fit into 64 bits."""
LARGEST_NUMBER = 1e6
"""The largest scale factor: far above any use, and finite in computations with fp16."""

Positive = Annotated[int, Field(gt=0, le=LARGEST)]
NotNegative = Annotated[int, Field(ge=0, le=LARGEST)]
Bytes = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
NotNegativeNumber = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Share = Annotated[float, Field(ge=0, lt=1)]
NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
"""A control character in a path comes from a backslash that is not doubled, as before the "n" of a folder "new"."""
TIME = r"^[1-9][0-9]{0,5}[smh]$"
Text = Annotated[str, Field(min_length=1, pattern=NO_CONTROL)]
LONGEST_NAME = 100
"""Characters in the name of a folder: file systems allow 255 bytes, and stores and runs add to a name."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NO_CONTROL)]
Modules = Literal["all-linear"] | Annotated[list[Text], Field(min_length=1)]


class Strict(BaseModel):
    """A block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Loose(BaseModel):
    """A block for free-form data: an unknown key is an error only if it is a near miss of a known one."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
