"""How a manifest says that answers are decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.inference.expert_config import GenerationConfig, Grammar, decoding_of
from expert_cli.manifest.reader import load_manifest
from expert_cli.manifest.schema import Decoding
from tests import manifests
from tests.machines import CPU

REAL = {
    "example-complete": ((0.1, 0.9, 50, None), (";", "\n\n"), "sql-postgres"),
    "expert-json-c65358f": ((0.7, 0.8, 20, None), ("\n\n",), "json"),
    "expert-neo4j-33640c2": ((0.6, 0.95, 20, 0.0), ("\n\n",), "cypher"),
    "expert-neo4j-c4902c1": ((0.6, 0.95, 20, 0.0), ("\n\n", "```", "};", ");"), "cypher"),
    "expert-sql-35d754c": ((0.7, 0.8, 20, 0.0), (";", "\n\n"), "sql-postgres"),
    "expert-sql-47dc4dc": ((0.1, 0.9, 50, None), (";", "\n\n"), "sql-postgres"),
    "expert-sql-d91ed79": ((0.1, 0.9, 50, None), (";", "\n\n"), "sql-postgres"),
    "expert-typescript-85b7826": ((0.4, 0.95, None, None), (), None),
    "fixture-v1": ((None, None, None, None), (), None),
    "fixture-v2": ((None, None, None, None), (), None),
}


@pytest.mark.parametrize("path", manifests.SHARED, ids=manifests.name_of)
def test_a_real_manifest_says_how(path: Path) -> None:
    sampling, stops, grammar = REAL[path.stem]
    names = ("temperature", "top_p", "top_k", "min_p")
    drawn: Any = {name: value for name, value in zip(names, sampling, strict=True) if value is not None}
    expected = GenerationConfig(**drawn, stops=stops, grammar=Grammar(grammar) if grammar else None)  # type: ignore[arg-type]
    assert decoding_of(load_manifest(path).manifest) == expected


WRITTEN = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.5,
    "num_beams": 4,
    "stop_sequences": ["#"],
    "use_grammar": True,
    "grammar_type": "json",
    "json_schema": {"type": "object", "properties": {"_id": {"type": "string"}}},
    "validation": "strict",
    "validation_cmd": "tsc",
}
OTHERS = {"temperature": 1, "use_grammar": False, "grammar_type": "sql", "json_schema": {"type": "array"}}


@pytest.mark.parametrize("key", Decoding.model_fields)
def test_a_key_has_the_effect_that_it_is_told_to_have(tmp_path: Path, key: str) -> None:
    """Another value of an applied key is another way to decode, one of any other key is not."""

    def read(written: dict[str, Any]) -> tuple[GenerationConfig, str]:
        manifest = manifests.small()
        manifest["training"]["decoding"] = written
        plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
        rows = {row.key: row for row in plan.effects}
        return decoding_of(plan.loaded.manifest), rows[f"training.decoding.{key}"].status

    found, status = read(WRITTEN)
    without = {name: value for name, value in WRITTEN.items() if name != key}
    other, _ = read({**without, key: OTHERS.get(key)})
    assert (found != other) == (status == "applied")
    assert found.grammar == Grammar("json", WRITTEN["json_schema"])  # type: ignore[arg-type]
    free, status = read({**WRITTEN, "use_grammar": False})
    assert free.grammar is None
    assert (status == "not_used") == (key in ("grammar_type", "json_schema"))


def test_a_schema_is_of_json_alone_an_empty_stop_sequence_is_none_and_at_temperature_0_nothing_is_drawn(
    tmp_path: Path,
) -> None:
    manifest = manifests.small()
    sql = {"use_grammar": True, "grammar_type": "sql", "json_schema": {"type": "object"}, "stop_sequences": ["", ";"]}
    manifest["training"]["decoding"] = {**sql, "temperature": 0, "top_p": 0.9}
    decoding = decoding_of(load_manifest(manifests.write(tmp_path, manifest)).manifest)
    assert decoding == GenerationConfig(stops=(";",), grammar=Grammar("sql"))
