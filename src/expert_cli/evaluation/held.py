"""What an answer to a case is held to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from expert_cli.config.defaults.decoding import JSON_GRAMMARS
from expert_cli.evaluation.verifiers.query import QueryCase

if TYPE_CHECKING:
    from expert_cli.evaluation.verifiers.case import Case
    from expert_cli.inference.expert_config import Grammar
    from expert_cli.inference.grammar import Held


def held_for(turn: str, case: Case | None, grammar: Grammar | None) -> Held | None:
    """Return what holds the answer to a turn's text, by the case's own JSON Schema where it has one; None for free text.

    What PostgreSQL does not compile on the case's database is asked again, as SQL is that SQLite does not compile.
    """
    if grammar is None:
        return None
    from expert_cli.inference.grammar import grammar_for  # the light side does without torch

    held = grammar_for(grammar, turn, getattr(case, "json_schema", None))
    if held and isinstance(case, QueryCase) and case.language == "postgresql":
        return replace(held, fault=case.compile_fault)
    return held


def not_held(case: Case, grammar: Grammar) -> str:
    """Return what of a case's JSON Schema answers are not held to, "" for nothing, or where there is none."""
    from expert_cli.inference import grammar as of_grammar

    schema = getattr(case, "json_schema", None) if grammar.type in JSON_GRAMMARS else None
    return "" if schema is None else of_grammar.not_held(schema)
