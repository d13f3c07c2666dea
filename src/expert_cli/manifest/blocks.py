"""What the blocks of a manifest are made of: kinds of values, and how a block takes a key that it does not know."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegativeNumber = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
Modules = Literal["all-linear"] | Annotated[list[Text], Field(min_length=1)]


class Strict(BaseModel):
    """A block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Loose(BaseModel):
    """A block of free-form data: an unknown key is refused only when it is a near miss of a known one."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)
