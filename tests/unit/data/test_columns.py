"""Which columns are chosen, and what is said where that cannot be told."""

from __future__ import annotations

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import Columns, choose_columns
from expert_cli.errors import InputError

NOTHING = ColumnMapping()


@pytest.mark.parametrize(
    ("names", "mapping", "chosen", "line"),
    [
        pytest.param(
            ["db_id", "question", "context", "answer"],
            NOTHING,
            Columns("pair", "question", "context", "answer"),
            "instruction <- question, input <- context, response <- answer",
            id="spider",
        ),
        pytest.param(["id", "text"], NOTHING, Columns("text", text="text"), "text <- text", id="text as the document"),
        pytest.param(
            ["prompt", "messages"],
            NOTHING,
            Columns("messages", messages="messages"),
            "messages <- messages",
            id="messages",
        ),
        pytest.param(
            ["question", "context", "answer"],
            ColumnMapping(instruction="question", response="answer"),
            Columns("pair", "question", "", "answer"),
            None,
            id="instruction and response named: nothing beside them",
        ),
        pytest.param(
            ["question", "context", "solution"],
            ColumnMapping(response="solution"),
            Columns("pair", "question", "context", "solution"),
            None,
            id="response named: the others recognized",
        ),
        pytest.param(
            ["Question", "answer", "Answer"],
            NOTHING,
            Columns("pair", "Question", "", "answer"),
            "instruction <- Question, response <- answer",
            id="the case of letters",
        ),
        pytest.param(
            ["a;b"], ColumnMapping(text="A;b"), Columns("text", text="a;b"), "text <- a;b", id="a named separator"
        ),
    ],
)
def test_columns_are_chosen_by_mapping_and_usual_names(
    names: list[str], mapping: ColumnMapping, chosen: Columns, line: str | None
) -> None:
    columns = choose_columns(names, mapping, "rows.jsonl")
    assert columns == chosen
    assert line is None or str(columns) == line


@pytest.mark.parametrize(
    ("names", "mapping", "message", "hint"),
    [
        pytest.param(
            ["question", "answer", "sql"],
            NOTHING,
            'rows.jsonl: 2 columns could be the response ("answer", "sql"); columns: question, answer, sql',
            '"field_mapping": {"instruction": "question", "response": "answer"}',
            id="ambiguous response",
        ),
        pytest.param(
            ["id", "answer"],
            NOTHING,
            "rows.jsonl: no column is recognized as the instruction; columns: id, answer",
            '"response": "answer"',
            id="missing instruction",
        ),
        pytest.param(
            ["question", "anwser"],
            ColumnMapping(instruction="question", response="answer"),
            'the column "answer" of "field_mapping.response" does not exist; columns: question, anwser',
            "name one of these columns",
            id="a named column that is not there",
        ),
        pytest.param(
            ["question;answer"],
            NOTHING,
            'rows.jsonl: one column, "question;answer": are its values separated by ";"?',
            "save it with commas",
            id="a CSV of semicolons",
        ),
        pytest.param(
            ["text", "answer"],
            ColumnMapping(text="text", response="answer"),
            '"field_mapping" names response and text',
            "keep one",
            id="text and response named",
        ),
    ],
)
def test_what_cannot_be_told_is_an_error_with_the_mapping_to_write(
    names: list[str], mapping: ColumnMapping, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose_columns(names, mapping, "rows.jsonl")
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("names", "task", "remedy"),
    [
        ("prompt chosen rejected", "preferences", '"response": "chosen"'),
        ("prompt completion label", "judged right or wrong", "keep the right ones"),
        ("text label", "classification", '{"instruction": "text", "response": "label"}'),
        ("input_ids attention_mask", "tokens", "--trust-store"),
        ("contents", "Gemini", '{"messages": [{"role": "user"'),
    ],
)
def test_columns_of_another_task_are_refused_unless_the_manifest_names_what_is_read(
    names: str, task: str, remedy: str
) -> None:
    with pytest.raises(InputError, match=f"rows of .*{task}") as caught:
        choose_columns(names.split(), NOTHING, "rows")
    assert remedy in caught.value.hint
    assert choose_columns(names.split(), ColumnMapping(text=names.split(maxsplit=1)[0]), "rows").form == "text"
