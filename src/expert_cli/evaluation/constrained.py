"""What an answer to a case is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from expert_cli.config.defaults.decoding import JSON_GRAMMARS

if TYPE_CHECKING:
    from expert_cli.evaluation.verifiers.case import Case
    from expert_cli.inference.expert import PromptRenderer
    from expert_cli.inference.grammar.constraint import Constraint
    from expert_cli.inference.grammar.grammar import Grammar


def constraint_on(
    question: tuple[str, str], case: Case | None, grammar: Grammar | None, renderer: PromptRenderer
) -> Callable[[], Constraint] | None:
    """Return what makes the constraint of one answer, by the case's own JSON Schema where it has one; None for free text.

    question: what is asked, and what stands below it.
    """
    if grammar is None:
        return None
    from expert_cli.inference.grammar.choose import constraint_for  # the light side does without tokenizers

    schema = getattr(case, "json_schema", None)
    return constraint_for(grammar, renderer.format_user_turn(*question), renderer.vocabulary, schema)


def schema_fault(case: Case, grammar: Grammar) -> str:
    """Return why a case's JSON Schema cannot hold answers, "" where it can, or where there is none."""
    from expert_cli.inference.grammar.choose import unread

    schema = getattr(case, "json_schema", None) if grammar.type in JSON_GRAMMARS else None
    return "" if schema is None else unread(schema)
