"""Count the wrong variants of right TypeScript answers that the tests of the shipped cases let pass.

python -m benchmarks.judge_typescript_mutants [--count 600] [--cases OLD_CASES.jsonl OLD_UNSEEN.jsonl]

A variant has one fault: another comparison or operator, a constant that is one off, another key or text, a step that is
missing (sort, reverse, filter, slice, a copy, await, a default, a negation, a statement), a condition that is always the same.
--cases judges the same variants by the tests of other
files, paired by prompt. Those that pass are printed, each as the line it changed: some mean the same as the right answer.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from datagen.cases.value_cases import typescript_cases, unseen_typescript_cases
from datagen.typescript.check import PARSER
from expert_cli.evaluation.cases import read_case

SEED = 25
TIMEOUT_S = 5.0
OTHERS = {
    old: new.split()
    for old, new in (
        *((">", ">= <"), (">=", "> <"), ("<", "<= >"), ("<=", "< >"), ("===", "!=="), ("!==", "===")),
        *(("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"), ("&&", "||"), ("||", "&&"), ("+=", "-=")),
        *(("-=", "+="), ("some", "every"), ("every", "some"), ("max", "min"), ("min", "max"), ("push", "unshift")),
        *(("pop", "shift"), ("shift", "pop"), ("toUpperCase", "toLowerCase"), ("toLowerCase", "toUpperCase")),
        *(("true", "false"), ("false", "true"), ("startsWith", "includes"), ("floor", "ceil")),
    )
}
STEPS = ("sort", "reverse", "filter", "slice")


class Mutant(NamedTuple):
    """A wrong variant: its kind and its text."""

    kind: str
    text: str


class _Edit(NamedTuple):
    kind: str
    start: int
    end: int
    text: str


def mutants(answer: str) -> list[Mutant]:
    """Every variant of an answer, none twice and none the answer itself."""
    source = answer.encode()
    made: dict[str, Mutant] = {}
    for edit in _edits(PARSER.parse(source).root_node, _keys(answer)):
        text = (source[: edit.start] + edit.text.encode() + source[edit.end :]).decode()
        if text != answer:
            made.setdefault(text, Mutant(edit.kind, text))
    return list(made.values())


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _keys(answer: str) -> dict[str, list[str]]:
    """The keys that each key of an interface could be mistaken for: those of the same type."""
    typed: dict[str, list[str]] = {}
    nodes = [node for node in _nodes(PARSER.parse(answer.encode()).root_node) if node.type == "property_signature"]
    for node in nodes:
        kind = node.child_by_field_name("type")
        typed.setdefault(kind.text.decode() if kind else "", []).append(node.child_by_field_name("name").text.decode())
    return {name: [other for other in names if other != name] for names in typed.values() for name in names}


def _edits(root: Any, keys: dict[str, list[str]]) -> Iterator[_Edit]:
    for node in _nodes(root):
        text, place = node.text.decode(), (node.start_byte, node.end_byte)
        parent = node.parent.type if node.parent else ""
        if parent in ("binary_expression", "augmented_assignment_expression") and text in OTHERS:
            yield from (_Edit(text, *place, other) for other in OTHERS[text])
        if node.type in ("property_identifier", "true", "false") and parent in (
            "member_expression",
            "return_statement",
        ):
            yield from (_Edit(text, *place, other) for other in OTHERS.get(text, ()))
            yield from (_Edit("key", *place, other) for other in keys.get(text, ()))
        if node.type == "number" and parent not in ("literal_type",):
            yield from (_Edit("constant", *place, str(int(text) + step)) for step in (1, -1) if text.isdigit())
        if node.type == "string" and parent not in ("literal_type", "import_statement") and not _of_an_error(node):
            yield _Edit("text", *place, f"{text[:-1]}x{text[-1]}" if len(text) > 2 else '"x"')
        if node.type == "unary_expression" and text.startswith("!"):
            yield _Edit("negation", *place, text[1:])
        if node.type == "await_expression":
            yield _Edit("await", *place, text.removeprefix("await").lstrip())
        if node.type == "binary_expression" and node.children[1].type in ("??", "||"):
            yield _Edit("default", *place, node.children[0].text.decode())
        if node.type in ("if_statement", "ternary_expression"):
            condition = node.child_by_field_name("condition")
            yield from (
                _Edit("condition", condition.start_byte, condition.end_byte, f"({word})") for word in ("true", "false")
            )
        if node.type == "expression_statement" and parent == "statement_block":
            yield _Edit("statement", *place, "")
        if node.type == "array" and text.startswith("[...") and len(node.named_children) == 1:
            yield _Edit("no copy", *place, node.named_children[0].named_children[0].text.decode())
        yield from _missing_step(node, place)


def _of_an_error(node: Any) -> bool:
    """Whether a text is an error's message: no prompt says its words."""
    return node.parent.parent is not None and node.parent.parent.type == "new_expression"


def _missing_step(node: Any, place: tuple[int, int]) -> Iterator[_Edit]:
    called = node.child_by_field_name("function") if node.type == "call_expression" else None
    if called is None or called.type != "member_expression":
        return
    name, owner = called.child_by_field_name("property").text.decode(), called.child_by_field_name("object")
    if name in STEPS:
        yield _Edit(f"no {name}", *place, owner.text.decode())
    if name == "sort":
        arguments = node.child_by_field_name("arguments")
        yield _Edit("sort turned round", *place, f"{node.text.decode()}.reverse()")
        yield _Edit("sort by default", arguments.start_byte, arguments.end_byte, "()")


def sample(count: int) -> list[tuple[Mapping[str, Any], str, Mutant]]:
    """A seeded choice of variants, each with its case's row and the right answer."""
    made = [
        (row, answer, mutant)
        for cases in (typescript_cases(), unseen_typescript_cases())
        for row, answer in zip(cases.rows, cases.answers, strict=True)
        for mutant in mutants(answer)
    ]
    return Random(SEED).sample(made, min(count, len(made)))


def _changed(answer: str, mutant: str) -> str:
    lines = difflib.ndiff(answer.splitlines(), mutant.splitlines())
    return " ".join(line for line in lines if line[0] in "+-")


def main() -> None:
    """Print what passes, and the counts of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--cases", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    lines = [line for path in options.cases for line in path.read_text(encoding="utf-8").splitlines()]
    other = {row["prompt"]: row["tests"] for row in map(json.loads, lines)}
    made, passed, kinds = Counter[str](), Counter[str](), Counter[str]()
    for row, answer, mutant in sample(options.count):
        tests = other.get(row["prompt"], "" if other else row["tests"])
        grade = read_case(row["id"], {"verifier": "typescript", "tests": tests}).grade(mutant.text, None, TIMEOUT_S)
        made[mutant.kind] += 1
        kinds[grade.kind] += 1
        if grade.passed:
            passed[mutant.kind] += 1
            print(f"{row['id']} [{mutant.kind}] {_changed(answer, mutant.text)}", flush=True)
    for kind, number in made.most_common():
        print(f"{kind:20} {passed[kind]:4} of {number:4} pass")
    print(f"{sum(passed.values())} of {made.total()} pass; verdicts: {dict(kinds)}")


if __name__ == "__main__":
    main()
