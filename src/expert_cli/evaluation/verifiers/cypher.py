"""Judges a Cypher query by what it returns from the case's graph."""

from __future__ import annotations

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Example
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.sandbox.worker import Worker

_GRAPHQLITE = Worker(f"{__package__}.sandbox.graphqlite:judge", "apsw", "graphqlite", "sqlglot")


class CypherCase(QueryCase):
    """`script`, which makes a graph, and `expected`: the results are compared."""

    fences = frozenset({"cypher", "neo4j", "opencypher"})
    example = Example(
        {
            "prompt": "Who knows whom?",
            "script": "people.cypher",
            "expected": "MATCH (p)-[:KNOWS]->(q) RETURN p.name, q.name;",
        },
        right="MATCH (q)<-[:KNOWS]-(p) RETURN p.name, q.name",
        wrong="MATCH (p)-[:KNOWS]->(q) RETURN q.name, p.name",
    )

    file_key = "script"

    script: str | list[str] = Field(
        min_length=1,
        description="A Cypher script, relative to the file of the row, or a list: right means right on all.",
    )

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        return next(iter(split(self.expected, "cypher")), "")

    def judged_by(self) -> Worker:
        """Return the processes that ask graphqlite."""
        return _GRAPHQLITE
