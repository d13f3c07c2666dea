"""Judges a Cypher query by what it returns from the case's graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Example
from expert_cli.evaluation.verifiers.graph_names import GRAPH_NAMES, GraphNames, unknown_name
from expert_cli.evaluation.verifiers.query import FileState, QueryCase, Source
from expert_cli.evaluation.verifiers.query_text import code_words, split
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, MAX_CYPHER_BYTES, Stopped

_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))


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

    def source(self, files: Sequence[FileState]) -> Source:
        """Return the graphs that the scripts make; lists are compared in order unless a query collects them unordered."""
        return _source(tuple(files))

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        return next(iter(split(self.expected, "cypher")), "")


def _refuse(statement: str) -> None:
    """Refuse by words what writes, or reads files or the network: LOAD CSV, and the APOC library.

    graphqlite passes over some writes in silence, and its LOAD CSV opens files.
    """
    code = ["", *(word for word, _ in code_words(statement, "cypher")), ""]
    for before, word, after in zip(code, code[1:], code[2:], strict=False):
        is_name = before in _BEFORE_NAMES or after == ":"
        if word == "APOC" or (word, after) == ("LOAD", "CSV") or (word in _WRITES and not is_name):
            raise Stopped("refused", word)


@lru_cache(maxsize=4)
def _source(files: tuple[FileState, ...]) -> Source:
    engine = EngineProcess("graphqlite", *(file.path for file in files))

    @cache
    def names() -> GraphNames:
        found = (engine.run(query, timeout_s=GOLD_TIMEOUT_S) for query in GRAPH_NAMES)
        return GraphNames(*(frozenset(str(name) for (name,) in rows) for rows in found))

    unknown = lambda statement: unknown_name(statement, names())
    return Source(str(files[0].path), engine, "cypher", MAX_CYPHER_BYTES, _refuse, unknown)
