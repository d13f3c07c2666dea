"""Which grammar an expert's answers are held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from expert_cli.manifest.types import GrammarType


@dataclass(frozen=True)
class Grammar:
    """A kind of grammar; json_schema: of `json` and `json-schema`, where a question brings none of its own."""

    type: GrammarType
    json_schema: Mapping[str, Any] | None = None
