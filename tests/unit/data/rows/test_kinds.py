"""Every kind of rows there is, by one example row: it is recognized, checked, written down, stored, and asked as an example."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import expert_cli
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import ColumnNames
from expert_cli.data.rows.forms import Form
from expert_cli.data.rows.kinds import KINDS, kind_of
from expert_cli.data.rows.validation import validate_row
from expert_cli.data.templates.chat_template import ChatTemplate
from tests.row_forms import FORMS, columns_of, mapping_of
from tests.tiny import CHATML, CONTROL_TOKENS, template_for, tiny_backend

EACH = pytest.mark.parametrize(("kind", "form"), FORMS.values(), ids=FORMS)
CALLING = "{{ tools | tojson if tools else '' }}" + CHATML.replace(
    "+ '<|im_end|>'",
    "}}{% if message.tool_calls %}{{ message.tool_calls[0].function | tojson }}{% endif %}{{ '<|im_end|>'",
)
TEMPLATE = template_for(tiny_backend(), "", own=ChatTemplate(CALLING), eos_token=CONTROL_TOKENS[0])
ASKED = ("How many?", "4 boats", "Count.", "Hello!", "Sure?")
ANSWERS = ("Four.", "Three.", "Hello.", "Once upon a time")


def texts(value: object) -> list[str]:
    """Return all text in a row, but for names."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    return [text for inner in value for text in texts(inner)] if isinstance(value, list) else [str(value)]


@EACH
def test_a_form_is_recognized_as_of_its_kind_and_of_no_other(kind: type[Rows], form: Form) -> None:
    columns = columns_of(form)
    assert kind_of(columns) is kind
    assert sorted(columns.read()) == sorted(form.row)
    assert {role for role in KINDS[kind.kind].roles if getattr(columns, role)} >= {kind.answer_role}
    others = [other for other in KINDS.values() if other is not kind and "response" not in other.roles]
    names = ColumnNames(list(form.row), replace(mapping_of(form), messages=""), "x")
    assert [other.choose(names) for other in others] == [None] * len(others)


@EACH
def test_a_form_is_good_and_all_of_it_is_held(kind: type[Rows], form: Form) -> None:
    columns, rows = columns_of(form), kind()
    assert validate_row(rows, form.row, columns, "x:1") == ""
    assert validate_row(rows, {**form.row, getattr(columns, kind.answer_role): None}, columns, "x:2") != ""
    assert validate_row(rows, {}, columns, "x:3") != ""
    assert (len(rows), rows.origins) == (1, ["x:1"])
    held, said = "\n".join(rows.content(0)), [text for text in texts(form.row) if text in ANSWERS or text in ASKED]
    assert said or isinstance(form.row["messages"], str)
    assert [text for text in said if text not in held] == []
    assert rows.answer(0) in ANSWERS or '"name": "add"' in rows.answer(0)
    (length,) = rows.lengths()
    assert length <= sum(map(len, rows.content(0)))
    assert rows.memory() > length
    twice = rows.take([0, 0])
    assert twice.content(1) == rows.content(0)
    assert (len(twice), twice.without({0, 1})) == (2, kind())
    block = {name: [value] for name, value in form.row.items() if isinstance(value, str)}
    plain = kind.of_texts(block, columns)
    assert plain is None or (plain.columns(), len(block)) == (rows.columns(), len(form.row))


@EACH
def test_a_form_may_be_an_example_before_a_question(kind: type[Rows], form: Form) -> None:
    rows = kind()
    validate_row(rows, form.row, columns_of(form), "x:1")
    (document,) = TEMPLATE.documents(rows)
    shot = rows.shot(0)
    assert shot is None or (shot.answer in ANSWERS and shot.prompt in "".join(piece.text for piece in document))


@EACH
def test_a_system_prompt_stands_before_each_form_that_has_none_of_its_own(kind: type[Rows], form: Form) -> None:
    """Whole documents stay as they are."""
    own = ChatTemplate(CALLING)
    asked = template_for(tiny_backend(), "", own=own, eos_token=CONTROL_TOKENS[0], system_prompt="Be brief.")
    rows = kind()
    validate_row(rows, form.row, columns_of(form), "x:1")
    (document,), (without,) = asked.documents(rows), TEMPLATE.documents(rows)
    system = "<|im_start|>system\n"
    text, plain = ("".join(piece.text for piece in pieces) for pieces in (document, without))
    if kind.is_whole_text or system in plain:
        assert text == plain
    else:
        assert text == plain.replace("<|im_start|>", f"{system}Be brief.<|im_end|>\n<|im_start|>", 1)


def test_no_code_asks_which_kind_rows_are() -> None:
    """What differs between kinds stands in their classes: whoever compares with a name forgets the next kind."""
    classes = "|".join(kind.__name__ for kind in KINDS.values())
    asks = re.compile(rf"""([!=]=|case) *"({"|".join(KINDS)})"|isinstance\(.*({classes})""")
    package = Path(expert_cli.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    ]
    assert found == []
