"""What the blocks of a manifest are made of: kinds of values, and how a block takes a key that it does not know."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
