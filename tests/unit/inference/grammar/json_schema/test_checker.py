import json
import random
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.errors import InputError
from expert_cli.inference.grammar.json_schema.checker import JsonChecker
from expert_cli.inference.grammar.json_schema.schema import JsonSchema

EXPERT = Path(__file__).parents[5] / "experts" / "expert-json" / "tests"
CASES = [
    json.loads(line)
    for name in ("cases", "unseen")
    for line in (EXPERT / f"{name}.jsonl").read_text("utf-8").splitlines()
]
FORMS: list[dict[str, Any]] = [
    {"separators": (",", ":"), "ensure_ascii": False},
    {"ensure_ascii": False},
    {"ensure_ascii": True, "indent": 4},
]
NODE = {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}
CLOSED = {"type": "object", "required": ["k"], "additionalProperties": False}
UNION = [
    CLOSED | {"properties": {"k": {"const": "a"}, "x": {}}},
    CLOSED | {"properties": {"k": {"const": "b"}, "y": {}}},
]


def taken(schema: Any, text: str) -> str:
    """Return what of a text is viable, character by character, with "¶" behind it where it may end there."""
    checker = JsonChecker(JsonSchema(schema))
    end = next((n for n in range(1, len(text) + 1) if not checker.viable(text[:n])), len(text) + 1) - 1
    return text[:end] + "¶" * checker.complete(text[:end])


def test_every_expected_answer_is_viable_in_any_pieces_however_it_is_laid_out() -> None:
    draw = random.Random(2)
    for case in CASES:
        schema = JsonSchema(case["schema"])
        for form in FORMS:
            text, checker, end = json.dumps(case["expected"], **form), JsonChecker(schema), 0
            while end < len(text):
                assert not checker.complete(text[:end])
                end += draw.randint(1, 12)
                assert checker.viable(text[:end]), (case["id"], text[:end])
            assert checker.complete(text)


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        # any JSON, strictly
        (
            {},
            [
                '{"a": [1, -2.5e+3, true, null], "b": {}} \n¶',
                '"\\u00e9\\ud83d\\ude42"¶',
                "[]¶",
                "0¶",
                '"\\/"¶',
                " 12 ¶",
            ],
        ),
        ({}, ["[1,|]", "0|1", "-|a", "1.|e", '{"a"|}', "[|,", "tru|t", "[1|}", '"a|\n', '"\\|x', '"\\ud83d|"', "|N"]),
        ({}, ['"\\ud|e42', '{"a": 1, "a|": 2}', "1e30|9", "-1e308|0", '"a" |"', "[" * 100 + "|[", " " * 64 + "| "]),
        # names in any order, each once, what must be is there before the end
        (
            {"properties": {"a": {}, "ab": {}}, "additionalProperties": False},
            ['{"ab": 1, "a": 2}¶', "{}¶", '{"a|c', '{"a": 1, "a|"'],
        ),
        ({"properties": {"a": {}, "b": {}}, "additionalProperties": False}, ['{"b": 1, "a": 2|,', '{"|c']),
        ({"properties": {"a": {}}, "required": ["a"]}, ['{"x": 1, "a": 2}¶', "{|}", '{"x": 1|}', "[]¶"]),
        (
            {"patternProperties": {"^x_": {"type": "null"}}, "additionalProperties": False},
            ['{"x_1": null}¶', '{"|y', '{"x_1": |1'],
        ),
        ({"propertyNames": {"pattern": "^[a-z]+$"}, "maxProperties": 1}, ['{"a": 1}¶', '{"|A', '{"a": 1|,']),
        (
            {"properties": {"é\n": {}}, "additionalProperties": False},
            ['{"é\\n": 1}¶', '{"\\u00e9\\n": 1}¶', '{"\\u00e|8'],
        ),
        ({"dependentRequired": {"a": ["b"]}, "minProperties": 1}, ['{"a": 1, "b": 2}¶', '{"a": 1|}', "{|}"]),
        (
            {"additionalProperties": {"type": "boolean"}, "properties": {"n": {"type": "null"}}},
            ['{"x": true, "n": null}¶', '{"n": |t'],
        ),
        # lists
        (
            {"items": {"enum": ["a", "ab"]}, "uniqueItems": True},
            ['["ab", "a"]¶', '["ab", "a|b"', '["a", "ab"|,', '["|b'],
        ),
        (
            {"items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2},
            ["[true, false]¶", "[true, |t", "[true|]", "[true, false|,"],
        ),
        ({"uniqueItems": True}, ["[1, 10]¶", "[1, 1.0|]", "[1, true]¶", '[{"a": [1]}, {"a": [1]|}]', "[0, false]¶"]),
        ({"prefixItems": [{"type": "integer"}], "items": False}, ["[1]¶", "[1|,", '[|"']),
        (
            {"items": [{"type": "integer"}], "additionalItems": {"type": "null"}, "maxItems": 2},
            ["[1, null]¶", "[1, |2", "[1, null|,"],
        ),
        # numbers
        ({"type": "integer", "minimum": 17, "maximum": 93, "multipleOf": 7}, ["21¶", "91¶", "|1", "9|2"]),
        ({"type": "integer", "minimum": 17, "maximum": 93, "multipleOf": 7}, ["9|3", "|0", "|-", "2|2", "7|5"]),
        (
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            ["0.5¶", "1¶", "1.0¶", "|2", "1|1", "1.0|1", "1e-3¶", "|-", "1e+|1"],
        ),
        ({"type": "integer", "exclusiveMaximum": 0, "minimum": -12}, ["-1¶", "-12¶", "-|0", "-1|3", "|1"]),
        ({"type": "number", "multipleOf": 0.01}, ["1.25¶", "1.25|1", "3¶"]),
        ({"type": "integer"}, ["1.0¶", "2e3¶", "1.|5"]),
        ({"maximum": 10, "exclusiveMaximum": True, "type": "integer"}, ["9¶", '|"']),
        # texts
        (
            {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{2}$"},
            ['"AB-12"¶', '"|a', '"AB-12|3', '"AB-1|"', '"\\u0041B-12"¶', '"\\u00|6', '"\\|n'],
        ),
        ({"type": "string", "pattern": "b"}, ['"abc"¶', '"ac|"']),
        ({"pattern": "^a$"}, ['"a|\\n"', "7¶"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"¶', '"🙂\\ud83d\\ude42"¶', '"a|"', '"abc|d']),
        ({"format": "date"}, ['"2024-02-29"¶', '"2023-02-2|9', '"2024-1|3', '"2024-04-3|1']),
        ({"format": "email"}, ['"a.b@c-d.org"¶', '"a|"', '"|@']),
        ({"format": "date-time"}, ['"2024-05-06T07:08:09Z"¶', '"2024-05-06T07:08:09|"']),
        # listed values, whole and begun
        (
            {"enum": ['é"x', 1.5, 10, True, None, {"a": [1, 2]}, []]},
            ['"\\u00e9\\"x"¶', '"é\\"x"¶', "1.5¶", "10¶", "10.0¶", "true¶", '{ "a" : [1, 2] }¶'],
        ),
        (
            {"enum": ["é", 1.5, 10, True, None, {"a": [1, 2]}, []]},
            ["1|1", "|f", "10.0|1", '{"a": [1, |3', '{"a": [1, 2|,', '{"a": [1|]', '{"|b', "[|1", "[]¶"],
        ),
        ({"const": 1}, ["1.0¶", "|t"]),
        # alternatives
        (
            {"oneOf": UNION},
            [
                '{"k": "b", "y": 1}¶',
                '{"y": 1, "k": "b"}¶',
                '{"k": "b", "|x',
                '{"y": 1, "k": "|a',
                '{"x": 1, "|y',
                '{"x": 1|}',
            ],
        ),
        ({"type": ["integer", "null"]}, ["null¶", "3¶", "|t", '|"']),
        (
            {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "null"}}}]},
            ['{"a": null}¶', "{|}", '{"a": |1'],
        ),
        (
            {"$defs": {"node": {"properties": NODE, "required": ["v"]}}, "$ref": "#/$defs/node"},
            ['{"v": 1, "next": {"v": 2, "next": null}}¶', '{"v": 1, "next": {|}'],
        ),
        (
            {"properties": {"a~/b": {"type": "null"}, "c": {"$ref": "#/properties/a~0~1b"}}},
            ['{"c": null}¶', '{"c": |1'],
        ),
        ({"not": {"type": "null"}}, ["null¶"]),
        (True, ["1¶"]),
    ],
)
def test_a_text_is_taken_up_to_where_it_cannot_fit(schema: Any, texts: list[str]) -> None:
    """In the table "|" is where it ends, "¶" where it may end."""
    for text in texts:
        ends = text.endswith("¶")
        written = text[:-1] if ends else text.replace("|", "")
        expected = text if ends else text.partition("|")[0]
        found = taken(schema, written)
        assert (found if ends else found.rstrip("¶")) == expected, text


def test_what_is_written_at_random_ends_and_fits() -> None:
    letters = [*map(chr, range(32, 127)), "é", "\\u00", "true", "false", "null"]
    draw = random.Random(7)
    # where other members may come, those that must come never do by chance
    written = [json.dumps(case["schema"]) for case in CASES]
    closed = [
        json.loads(one)
        for one in written
        if one.count('"type": "object"') == one.count('"additionalProperties": false')
    ]
    for schema in draw.sample(closed, 6):
        checker, text = JsonChecker(JsonSchema(schema)), ""
        while not checker.complete(text):
            assert len(text) < 3000
            order = draw.sample(letters, len(letters))
            if len(text) > 40:  # what closes first, so that it comes to an end
                order.sort(key=lambda one: draw.random() if one in '"}]:,' else 9)
            text += next(one for one in order if checker.viable(text + one))
        assert jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text)), text


def test_the_same_text_has_the_same_answer_whatever_was_asked_before() -> None:
    text = '{"a": ["x", {"b": 1.5}], "c": null}'
    prefixes = [text[:n] for n in range(len(text) + 1)] + ['{"a": ["x", 5', "[", '{"a": 1, "a"']
    whole = [JsonChecker(JsonSchema({})).viable(one) for one in prefixes]
    checker, draw = JsonChecker(JsonSchema({})), random.Random(3)
    for number in draw.choices(range(len(prefixes)), k=500):
        assert checker.viable(prefixes[number]) is whole[number]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "dict"}, "#/type of the JSON Schema is 'dict', not one of array, boolean"),
        ({"properties": {"a": {"required": True}}}, "#/properties/a/required of the JSON Schema is no list"),
        ({"properties": {"a": {"pattern": "("}}}, "the pattern '(' cannot be read"),
        ({"$ref": "https://example.com/x"}, "$ref 'https://example.com/x' leads out of the schema"),
        ({"items": {"$ref": "#/$defs/x"}}, "$ref '#/$defs/x' leads nowhere"),
        ({"$ref": "#"}, "#: $ref leads back to itself"),
        ({"anyOf": []}, "#/anyOf of the JSON Schema is no list of schemas"),
        ({"properties": []}, "#/properties of the JSON Schema holds no schemas by name"),
        ({"maxLength": "5"}, "#/maxLength of the JSON Schema is no count"),
        ({"minimum": "5"}, "#/minimum of the JSON Schema is no number"),
        ({"multipleOf": 0}, "#/multipleOf of the JSON Schema is not above 0"),
        ({"items": 5}, "#/items of the JSON Schema is no schema"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        JsonSchema(schema)
    assert caught.value.message.startswith(told)
