import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.artifacts.gbnf import gbnf, write_grammar
from expert_cli.inference.grammar.grammar import Grammar, GrammarType
from expert_cli.utils.reporter import NullReporter
from tests.tiny_gguf import write_gguf

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"enum": ['x"é', 1.5, None]},
        "b": {"type": ["boolean", "null"]},
        "c": {"type": "array", "items": {"$ref": "#/$defs/day"}, "minItems": 1, "maxItems": 2},
        "d": {"anyOf": [{"const": {"k": [1]}}, {"type": "string", "minLength": 2, "maxLength": 3}]},
        "e": {"allOf": [{"properties": {"f": {"type": "null"}}}, {"required": ["f"]}]},
    },
    "required": ["a", "c", "e"],
    "additionalProperties": False,
    "$defs": {"day": {"type": "string", "format": "uuid"}},
}
MANY = {
    "type": "object",
    "properties": {name: {"type": "null"} for name in "abcdefgh"},
    "required": ["c", "h"],
    "additionalProperties": False,
}
TUPLE = {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": 7}], "items": False, "minItems": 2}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of llama.cpp with a model that knows nothing."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here: pip install xllamacpp")
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(file)
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, 1
    params.warmup = params.fit_params = False
    return xllamacpp.Server(params)


def written(llama: Any, grammar: str, seed: int = 0, tokens: int = 900) -> str:
    """Return what is drawn under a grammar, each token as likely as any."""
    request = {"prompt": [5], "n_predict": tokens, "grammar": grammar, "seed": seed, "temperature": 5.0, "top_k": 0}
    answer = llama.handle_completions(request)
    if "choices" not in answer:
        return f"refused: {answer['error']['message']}"
    return str(answer["choices"][0]["text"])


@pytest.mark.parametrize("schema", [SCHEMA, MANY, TUPLE], ids=["all", "many", "tuple"])
def test_what_llama_cpp_writes_fits_the_schema(llama: Any, schema: dict[str, Any]) -> None:
    fits = jsonschema_rs.validator_for(schema, validate_formats=True)
    texts = [written(llama, gbnf(Grammar("json", schema)), seed) for seed in range(6)]
    values = [json.loads(text) for text in texts]
    assert all(fits.is_valid(value) for value in values), texts
    assert len({json.dumps(value) for value in values}) > 1 or schema is TUPLE


@pytest.mark.parametrize(
    ("type_", "start"),
    [("sql", "SELECT WITH"), ("sql-postgres", "SELECT WITH"), ("cypher", "MATCH OPTIONAL CREATE CALL")],
)
def test_llama_cpp_reads_the_grammars_of_queries(llama: Any, type_: GrammarType, start: str) -> None:
    text = written(llama, gbnf(Grammar(type_)), tokens=60).lstrip()
    starts = [*start.split(), "RETURN", "UNWIND", "WITH", "MERGE"]
    assert text.upper().startswith(tuple(starts)), text


def test_a_grammar_that_is_none_is_refused_by_llama_cpp(llama: Any) -> None:
    assert written(llama, "root ::= nothing").startswith("refused")


def test_any_json_begins_as_json_does(llama: Any) -> None:
    assert written(llama, gbnf(Grammar("json")), tokens=30).lstrip()[0] in '{["-0123456789tfn'


def test_properties_come_in_any_order_while_there_are_few() -> None:
    """A rule for each set of those that are left, two for one whose first is not written yet."""
    few = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
        "additionalProperties": False,
    }
    text = gbnf(Grammar("json", few))
    assert r'"\"a\"" ws ":" ws null ws' in text
    assert text.count(r'"\"a\""') == text.count(r'"\"b\""') == 2
    assert gbnf(Grammar("json", MANY)).count(r'"\"h\""') > gbnf(Grammar("json", MANY)).count(r'"\"a\""') == 1


def test_the_files_and_what_the_card_says(tmp_path: Path) -> None:
    lines = write_grammar(tmp_path, Grammar("json-schema", SCHEMA), NullReporter())
    assert (tmp_path / "grammar.gbnf").read_text(encoding="utf-8") == gbnf(Grammar("json", SCHEMA))
    assert json.loads((tmp_path / "schema.json").read_text(encoding="utf-8")) == SCHEMA
    assert "--json-schema-file" in " ".join(lines)

    unreadable = tmp_path / "unreadable"
    unreadable.mkdir()
    lines = write_grammar(unreadable, Grammar("json", {"type": "dict"}), NullReporter())
    assert (unreadable / "grammar.gbnf").read_text(encoding="utf-8") == gbnf(Grammar("json"))
    assert "holds any JSON, not json_schema: #/type of the JSON Schema is 'dict'" in " ".join(lines)

    query = tmp_path / "query"
    query.mkdir()
    lines = write_grammar(query, Grammar("sql"), NullReporter())
    assert [path.name for path in query.iterdir()] == ["grammar.gbnf"]
    assert "names that do not exist" in " ".join(lines)
