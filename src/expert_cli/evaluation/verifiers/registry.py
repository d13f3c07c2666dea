"""The verifiers, by the name that a case's row gives."""

from __future__ import annotations

from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.cypher import CypherCase
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.sql import SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase
from expert_cli.evaluation.verifiers.values import ChoiceCase, ContainsAllCase, ExactCase, NumberCase, RegexCase

VERIFIERS: dict[str, type[Case]] = {
    "sql": SqlCase,
    "cypher": CypherCase,
    "json": JsonCase,
    "typescript": TypescriptCase,
    "exact": ExactCase,
    "choice": ChoiceCase,
    "number": NumberCase,
    "regex": RegexCase,
    "contains_all": ContainsAllCase,
}
