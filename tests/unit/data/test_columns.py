"""Which columns are chosen, and what is said where that cannot be told."""

from __future__ import annotations

import pytest

from expert_cli.data.columns import Columns, choose_columns, names_of_interest
from expert_cli.data.rowcheck import append_row
from expert_cli.data.rows import Message, Rows
from expert_cli.errors import InputError
from expert_cli.runconfig import ColumnMapping

NOTHING = ColumnMapping()


@pytest.mark.parametrize(
    ("names", "mapping", "chosen", "line"),
    [
        pytest.param(
            ["db_id", "question", "context", "answer"],
            NOTHING,
            Columns("question", "context", "answer"),
            "instruction <- question, input <- context, response <- answer",
            id="spider",
        ),
        pytest.param(
            ["question", "schema", "cypher"], NOTHING, Columns("question", "schema", "cypher"), None, id="text2cypher"
        ),
        pytest.param(
            ["output", "instruction", "prompt"],
            NOTHING,
            Columns("instruction", "", "output"),
            "instruction <- instruction, response <- output",
            id="instruction before prompt, whatever their order in the file",
        ),
        pytest.param(
            ["schema", "context", "prompt", "sql"], NOTHING, Columns("prompt", "context", "sql"), None, id="context"
        ),
        pytest.param(["text", "sql"], NOTHING, Columns("text", "", "sql"), None, id="text as the question"),
        pytest.param(["id", "text"], NOTHING, Columns(text="text"), "text <- text", id="text as the document"),
        pytest.param(
            ["prompt", "messages"], NOTHING, Columns(messages="messages"), "messages <- messages", id="messages"
        ),
        pytest.param(["id", "conversations"], NOTHING, Columns(messages="conversations"), None, id="sharegpt"),
        pytest.param(["Question", "ANSWER"], NOTHING, Columns("Question", "", "ANSWER"), None, id="other case"),
        pytest.param(
            ["Answer", "answer", "prompt"], NOTHING, Columns("prompt", "", "answer"), None, id="exact case first"
        ),
        pytest.param(
            ["question", "context", "answer"],
            ColumnMapping(instruction="question", response="answer"),
            Columns("question", "", "answer"),
            None,
            id="instruction and response named: nothing beside them",
        ),
        pytest.param(
            ["question", "context", "solution"],
            ColumnMapping(response="solution"),
            Columns("question", "context", "solution"),
            None,
            id="response named: the others recognised",
        ),
        pytest.param(
            ["question", "answer", "sql"],
            ColumnMapping(response="sql"),
            Columns("question", "", "sql"),
            None,
            id="response named among two",
        ),
        pytest.param(
            ["Doc", "text"], ColumnMapping(text="doc"), Columns(text="Doc"), None, id="text named, other case"
        ),
        pytest.param(["turns"], ColumnMapping(messages="turns"), Columns(messages="turns"), None, id="messages named"),
    ],
)
def test_columns_are_chosen_by_mapping_and_usual_names(
    names: list[str], mapping: ColumnMapping, chosen: Columns, line: str | None
) -> None:
    columns = choose_columns(names, mapping, "rows.jsonl")
    assert columns == chosen
    assert line is None or str(columns) == line
    kept = names_of_interest(mapping)
    assert all(name.casefold() in kept for name in (columns.instruction or columns.text or columns.messages).split())


@pytest.mark.parametrize(
    ("names", "mapping", "message", "hint"),
    [
        pytest.param(
            ["instructions", "stub", "solution"],
            NOTHING,
            "rows.jsonl: no column is recognised as the response; columns: instructions, stub, solution",
            '"field_mapping": {"instruction": "<column of the question>", "response": "<column of the answer>"}',
            id="missing response",
        ),
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
            'rows.jsonl: no column is recognised as the instruction beside "answer"; columns: id, answer',
            '"response": "answer"',
            id="missing instruction",
        ),
        pytest.param(
            ["messages", "prompt", "completion"],
            NOTHING,
            'rows hold both a conversation ("messages") and a pair ("prompt", "completion")',
            '"field_mapping": {"messages": "messages"} or {"instruction": "prompt", "response": "completion"}',
            id="two kinds",
        ),
        pytest.param(
            ["text", "context"], NOTHING, "no column is recognised as the response", "response", id="text and input"
        ),
        pytest.param(
            ["question", "anwser"],
            ColumnMapping(instruction="question", response="answer"),
            'the column "answer" of "field_mapping.response" is not there; columns: question, anwser',
            'Did you mean "anwser"?',
            id="near miss",
        ),
        pytest.param(
            ["ANSWER", "Answer", "question"],
            ColumnMapping(response="answer"),
            'the column "answer" of "field_mapping.response" is not there',
            'Did you mean "ANSWER" or "Answer"?',
            id="two that differ in case alone",
        ),
        pytest.param(
            ["question", "answer"],
            ColumnMapping(instruction="question", input="schema", response="answer"),
            'the column "schema" of "field_mapping.input" is not there',
            'Write one of these columns as "field_mapping.input".',
            id="mapped input absent",
        ),
        pytest.param(
            ["text", "answer"],
            ColumnMapping(text="text", response="answer"),
            '"field_mapping" names response and text',
            "Keep one",
            id="text and response named",
        ),
        pytest.param(["\ud800", "x"], NOTHING, "columns: ?, x", "field_mapping", id="a name that cannot be printed"),
        pytest.param([f"c{i}" for i in range(22)], NOTHING, "c19 and 2 more", "field_mapping", id="many columns"),
    ],
)
def test_what_cannot_be_told_is_an_error_with_the_mapping_to_write(
    names: list[str], mapping: ColumnMapping, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose_columns(names, mapping, "rows.jsonl")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.encode("utf-8")


PAIR = Columns("question", "context", "answer")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"question": "q"}, '"answer" is missing'),
        ({"question": "q", "answer": None}, '"answer" is null'),
        ({"question": "q", "answer": 3}, '"answer" is a number, not text'),
        ({"question": "q", "answer": 0.5}, '"answer" is a number, not text'),
        ({"question": "q", "answer": True}, '"answer" is true or false, not text'),
        ({"question": "q", "answer": {"a": 1}}, '"answer" is an object, not text'),
        ({"question": "q", "answer": ["a"]}, '"answer" is a list, not text'),
        ({"question": "q", "answer": b"a"}, '"answer" is bytes, not text'),
        ({"question": "q", "answer": ""}, '"answer" is empty'),
        ({"question": "q", "answer": " \r\n"}, '"answer" is empty'),
        ({"question": "q", "answer": "\ud800"}, '"answer" is not Unicode text (half of a surrogate pair)'),
        ({"answer": "a"}, '"question" is missing'),
        ({"question": 1, "answer": "a"}, '"question" is a number, not text'),
        ({"question": "q", "answer": "a", "context": ["t"]}, '"context" is a list, not text'),
        ({"question": "q", "answer": "a", "context": None}, ""),
        ({"question": "q", "answer": "a"}, ""),
        ({"question": "", "answer": " a "}, ""),
    ],
)
def test_a_pair_is_good_or_bad_for_one_reason(fields: dict[str, object], reason: str) -> None:
    rows = Rows("pair")
    assert append_row(rows, fields, PAIR, "f:1") == reason
    good = [] if reason else [fields["answer"]]
    assert rows.response == good
    assert len(rows) == len(rows.instruction) == len(rows.input) == len(good)
    assert rows.input == [""] * len(good)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param(
            [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a", "weight": 1},
            ],
            (Message("system", "s"), Message("user", "u"), Message("assistant", "a")),
            id="openai",
        ),
        pytest.param(
            [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}],
            (Message("user", "u"), Message("assistant", "a")),
            id="sharegpt",
        ),
        pytest.param(
            [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "thanks"}],
            (Message("user", "u"), Message("assistant", "a")),
            id="what follows the last answer is left out",
        ),
        pytest.param([{"role": "user", "content": "u"}], "no assistant turn", id="no answer"),
        pytest.param([], "no assistant turn", id="empty"),
        pytest.param(None, '"messages" is null', id="null"),
        pytest.param("hi", '"messages" is text, not a list of messages', id="text"),
        pytest.param(["hi"], "a message is text, not an object", id="a turn of text"),
        pytest.param(
            [{"role": "tool", "content": "1"}], 'a message has the role "tool", which is not trained', id="tool"
        ),
        pytest.param([{"role": "user"}], "a message's content is missing", id="no content"),
        pytest.param(
            [{"role": "user", "content": [{"type": "text"}]}], "a message's content is a list, not text", id="parts"
        ),
        pytest.param([{"content": "u"}], "a message's role is missing", id="no role"),
        pytest.param(
            [{"role": "user", "content": "u"}, {"role": "assistant", "content": " "}],
            "the last assistant turn is empty",
            id="empty answer",
        ),
    ],
)
def test_a_conversation_ends_with_its_last_answer(turns: object, expected: tuple[Message, ...] | str) -> None:
    rows = Rows("messages")
    reason = append_row(rows, {"messages": turns}, Columns(messages="messages"), "f:1")
    assert (reason, rows.messages) == ((expected, []) if isinstance(expected, str) else ("", [expected]))
