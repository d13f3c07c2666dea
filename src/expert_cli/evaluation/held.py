"""What an answer to a case is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expert_cli.config.defaults.decoding import JSON_GRAMMARS

if TYPE_CHECKING:
    from expert_cli.evaluation.verifiers.case import Case
    from expert_cli.inference.expert import PromptRenderer
    from expert_cli.inference.expert_config import Grammar
    from expert_cli.inference.grammar import Held


def held_for(
    question: tuple[str, str], case: Case | None, grammar: Grammar | None, renderer: PromptRenderer
) -> Held | None:
    """Return what holds an answer, by the case's own JSON Schema where it has one; None for free text.

    question: what is asked, and what stands below it.
    """
    if grammar is None:
        return None
    from expert_cli.inference.grammar import grammar_for  # the light side does without torch

    return grammar_for(grammar, renderer.format_user_turn(*question), getattr(case, "json_schema", None))


def not_held(case: Case, grammar: Grammar) -> str:
    """Return what of a case's JSON Schema answers are not held to, "" for nothing, or where there is none."""
    from expert_cli.inference import grammar as of_grammar

    schema = getattr(case, "json_schema", None) if grammar.type in JSON_GRAMMARS else None
    return "" if schema is None else of_grammar.not_held(schema)
