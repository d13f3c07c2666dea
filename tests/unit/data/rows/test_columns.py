"""Which columns are chosen, and what is said where that cannot be told."""

from __future__ import annotations

import json

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.columns import Columns, names_of_interest
from expert_cli.data.rows.kinds import choose_columns, kind_of
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.validation import NOT_TRAINED, validate_row
from expert_cli.errors import InputError

USER = {"role": "user", "content": "u"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
CALLING = json.dumps({"tool_calls": [CALL]})
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
        pytest.param(["id", "text"], NOTHING, Columns(text="text"), "text <- text", id="text as the document"),
        pytest.param(
            ["prompt", "messages"], NOTHING, Columns(messages="messages"), "messages <- messages", id="messages"
        ),
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
            id="response named: the others recognized",
        ),
        pytest.param(
            ["weight", "question", "answer", "Train"],
            NOTHING,
            Columns("question", "", "answer", weight="weight", train="Train"),
            "instruction <- question, response <- answer, weight <- weight, train <- Train",
            id="flags of rows",
        ),
        pytest.param(
            ["q", "a", "weight", "train"],
            ColumnMapping(instruction="q", response="a", input="weight"),
            Columns("q", "weight", "a", train="train"),
            None,
            id="a flag beside what is named, but for the column that is named",
        ),
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
            ["question", "answer", "sql"],
            NOTHING,
            'rows.jsonl: 2 columns could be the response ("answer", "sql"); columns: question, answer, sql',
            '"field_mapping": {"instruction": "question", "response": "answer"}',
            id="ambiguous response",
        ),
        pytest.param(
            ["id", "answer"],
            NOTHING,
            'rows.jsonl: no column is recognized as the instruction beside "answer"; columns: id, answer',
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
            ["question", "anwser"],
            ColumnMapping(instruction="question", response="answer"),
            'the column "answer" of "field_mapping.response" is not there; columns: question, anwser',
            'Did you mean "anwser"?',
            id="near miss",
        ),
        pytest.param(
            ["text", "answer"],
            ColumnMapping(text="text", response="answer"),
            '"field_mapping" names response and text',
            "Keep one",
            id="text and response named",
        ),
        pytest.param(["\ud800", "x"], NOTHING, "columns: ?, x", "field_mapping", id="a name that cannot be printed"),
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
        ({"question": "q", "answer": {"a": 1}}, '"answer" is an object, not text'),
        ({"question": "q", "answer": " \r\n"}, '"answer" is empty'),
        ({"question": "q", "answer": "\ud800"}, '"answer" is not Unicode text (half of a surrogate pair)'),
        ({"answer": "a"}, '"question" is missing'),
        ({"question": "q", "answer": "a", "context": ["t"]}, '"context" is a list, not text'),
        ({"question": "q", "answer": "a"}, ""),
        ({"question": "", "answer": " a "}, ""),
    ],
)
def test_a_pair_is_good_or_bad_for_one_reason(fields: dict[str, object], reason: str) -> None:
    rows = PairRows()
    assert validate_row(rows, fields, PAIR, "f:1") == reason
    good = [] if reason else [fields["answer"]]
    assert rows.response == good
    assert len(rows) == len(rows.instruction) == len(rows.input) == len(good)
    assert rows.input == [""] * len(good)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"weight": 0}, NOT_TRAINED),
        ({"train": False}, NOT_TRAINED),
        ({"weight": 1, "train": False}, NOT_TRAINED),
        ({"weight": " 0.0"}, NOT_TRAINED),
        ({"weight": 0, "answer": None}, NOT_TRAINED),
        ({"weight": 1, "train": True}, ""),
        ({"weight": "1", "train": ""}, ""),
        ({"weight": 0.5}, '"weight" is 0.5: 0 and false, 1 and true are known'),
    ],
)
def test_a_row_says_whether_it_is_trained(said: dict[str, object], reason: str) -> None:
    rows = PairRows()
    columns = Columns("question", "", "answer", weight="weight", train="train")
    assert validate_row(rows, {"question": "q", "answer": "a", **said}, columns, "f:1") == reason
    assert rows.response == ([] if reason else ["a"])


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param(
            [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a", "weight": 1},
            ],
            (Message("system", "s"), Message("user", "u"), Message("assistant", "a", trained=True)),
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
        pytest.param("hi", '"messages" is not JSON', id="text"),
        pytest.param(
            [
                {"from": "human", "value": "u"},
                {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
                {"from": "observation", "value": "1"},
                {"from": "gpt", "value": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            ],
            (
                Message("user", "u"),
                Message("assistant", "", fields=CALLING),
                Message("tool", "1"),
                Message("assistant", "ab"),
            ),
            id="calls and parts",
        ),
        pytest.param(
            [{"from": "human", "value": "u"}, {"from": "function_call", "value": "f(1)"}],
            '"function_call" is not JSON',
            id="a call that is none",
        ),
        pytest.param(
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            'a message\'s content has a part of the type "image_url", but text alone is trained',
            id="an image",
        ),
        pytest.param(["hi"], "a message is text, not an object", id="a turn of text"),
        pytest.param(
            [{"role": "narrator", "content": "1"}],
            'a message has the role "narrator", which is none here; "field_mapping.roles" says whose turns these are',
            id="role",
        ),
        pytest.param(
            [{"role": "user", "content": "u"}, {"role": "assistant", "content": " "}],
            "the last assistant turn is empty",
            id="empty answer",
        ),
    ],
)
def test_a_conversation_ends_with_its_last_answer(turns: object, expected: tuple[Message, ...] | str) -> None:
    rows = MessageRows()
    reason = validate_row(rows, {"messages": turns}, Columns(messages="messages"), "f:1")
    assert (reason, rows.messages) == ((expected, []) if isinstance(expected, str) else ("", [expected]))
    said = json.loads(turns) if isinstance(turns, str) and rows.messages else turns
    assert rows.trailing == [len(said) - len(expected) for _ in rows.messages]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ({"content": "a", "weight": 0}, Message("assistant", "a", trained=False)),
        ({"content": "a", "train": False, "weight": 1}, Message("assistant", "a", trained=False)),
        ({"content": "a", "loss": False}, Message("assistant", "a", trained=False)),
        ({"content": "a", "loss_mask": 1, "masked": False, "loss": True}, Message("assistant", "a", trained=True)),
        ({"content": "a", "weight": None, "tool_calls": None, "name": None}, Message("assistant", "a")),
        ({"content": "a", "tool_calls": []}, Message("assistant", "a")),
        ({"content": "a", "reasoning_content": "R"}, Message("assistant", "a", fields='{"reasoning_content": "R"}')),
        ({"content": None, "tool_calls": [CALL]}, Message("assistant", "", fields=CALLING)),
        ({"content": "a", "weight": 0.5}, 'a message\'s "weight" is 0.5: 0 and false, 1 and true are known'),
        ({"content": "a", "train_detail": [{}]}, 'a message has "train_detail", which cannot be trained'),
        ({"content": "a", "tool_calls": "f()"}, 'a message\'s "tool_calls" is text'),
        (
            {"content": "a", "tool_calls": [{"function": {}}]},
            'a message\'s "tool_calls" is not a list of calls with names',
        ),
        (
            {"content": "a", "thinking": "R", "reasoning": "S"},
            'a message has "thinking" and "reasoning", which differ',
        ),
        ({"content": "a", "value": "a", "from": "gpt"}, Message("assistant", "a")),
        ({"content": None, "tool_calls": [CALL], "value": "b"}, 'a message\'s "value" is not its "content"'),
        ({"content": "a", "reasoning_content": ["R"]}, 'a message\'s "reasoning_content" is a list'),
        (
            {"content": None, "function_call": {"name": "f", "arguments": {"a": 1}}},
            Message("assistant", "", fields=CALLING),
        ),
        (
            {"content": [{"type": "thinking", "thinking": "R"}, {"type": "text", "text": "a"}]},
            Message("assistant", "a", fields='{"reasoning_content": "R"}'),
        ),
        ({"content": "a", "images": ["x.png"]}, 'a message has "images", which cannot be trained'),
    ],
)
def test_what_an_answer_has_beside_its_content(turn: dict[str, object], expected: Message | str) -> None:
    rows = MessageRows()
    turns = [USER, {"role": "assistant", "content": "z"}, USER, {"role": "assistant", **turn}]
    reason = validate_row(rows, {"m": turns}, Columns(messages="m"), "f:1")
    assert (reason or rows.messages[0][-1]) == expected
    assert len(rows) == (0 if reason else 1)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"role": "user", "content": "u", "train": True}, ""),
        ({"role": "system", "content": "u", "weight": 1}, ""),
        ({"role": "user", "content": "u", "masked": True, "loss": 0, "loss_mask": False}, ""),
        *(
            (
                {"role": role, "content": "u", name: value},
                f'a message of the role "{role}" has "{name}", which only answers have',
            )
            for role in ("user", "tool")
            for name, value in (("reasoning_content", "R"), ("tool_calls", [CALL]))
        ),
        ({"role": "user", "content": "u", "thinking": "", "tool_calls": []}, ""),
        ({"from": "human", "value": "u", "content": "v"}, 'a message\'s "content" is not its "value"'),
    ],
)
def test_what_only_answers_may_have(turn: dict[str, object], reason: str) -> None:
    rows = MessageRows()
    found = validate_row(rows, {"m": [turn, USER, {"role": "assistant", "content": "a"}]}, Columns(messages="m"), "f:1")
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"tools": [TOOL], "system": "s"}, [Message("tools", json.dumps([TOOL])), Message("system", "s")]),
        ({"tools": json.dumps([{"name": "f"}])}, [Message("tools", '[{"name": "f"}]')]),
        ({"tools": "", "system": None}, []),
        ({"tools": "not JSON"}, '"tools" is not JSON'),
        ({"system": 5}, '"system" is a number, not text'),
    ],
)
def test_columns_beside_the_messages(beside: dict[str, object], expected: list[Message] | str) -> None:
    rows = MessageRows()
    columns = choose_columns(["messages", *beside], ColumnMapping(), "rows")
    reason = validate_row(rows, {"messages": [USER, {"role": "assistant", "content": "a"}], **beside}, columns, "f:1")
    assert (reason or list(rows.messages[0][:-2])) == expected


TALK = (Message("user", "h"), Message("assistant", "i"), Message("user", "q"), Message("assistant", "a"))
PAIR_ROW = {"instruction": "q", "input": "", "output": "a"}
TURN = {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**PAIR_ROW, "history": [["h", "i"]]}, TALK),
        ({**PAIR_ROW, "history": [["h", "i"]], "system": "s"}, (Message("system", "s"), *TALK)),
        ({**PAIR_ROW, "history": None}, ()),
        ({**PAIR_ROW, "history": "h"}, '"history" is text, not a list of [question, answer]'),
        ({**PAIR_ROW, "history": [["h", None]]}, '"history" is null'),
        ({"prompt": [USER], "completion": [TURN]}, (Message("user", "u"), Message("assistant", "b"))),
        ({"prompt": [USER], "completion": "b"}, (Message("user", "u"), Message("assistant", "b"))),
        (
            {"prompt": [USER, TURN, USER], "completion": [TURN, USER]},
            (
                Message("user", "u"),
                Message("assistant", "b", trained=False),
                Message("user", "u"),
                Message("assistant", "b"),
            ),
        ),
        (
            {"prompt": [USER], "completion": [TURN], "context": "c"},
            '"prompt" is a list of messages, beside a column of the input or of a database',
        ),
    ],
)
def test_what_stands_around_a_question(row: dict[str, object], expected: tuple[Message, ...] | str) -> None:
    columns = choose_columns(list(row), ColumnMapping(), "rows")
    rows = kind_of(columns)()
    reason = validate_row(rows, row, columns, "f:1")
    assert isinstance(rows, PairRows)
    assert (reason or rows.talks[0]) == expected


@pytest.mark.parametrize(
    ("parallel", "count", "reason"),
    [
        (True, 2, ""),
        (False, 2, '"parallel_tool_calls" is false, but a turn has several calls'),
        ("no", 1, '"parallel_tool_calls" is text, not true or false'),
    ],
)
def test_a_row_without_parallel_calls_has_none(parallel: object, count: int, reason: str) -> None:
    row = {"messages": [USER, {"role": "assistant", "tool_calls": [CALL] * count}], "parallel_tool_calls": parallel}
    columns = choose_columns(list(row), ColumnMapping(), "rows")
    assert validate_row(MessageRows(), row, columns, "f:1") == reason


def test_own_names_go_before_the_usual_ones() -> None:
    """A turn may have both; what stands under the usual ones is then not read, and named."""
    named = ColumnMapping(role="speaker", content="text", roles=(("bot", "assistant"), ("developer", "system")))
    columns = choose_columns(["messages"], named, "rows")
    turns = [
        {"speaker": "developer", "text": "s"},
        {"role": "user", "content": "u"},
        {"speaker": "bot", "text": "a", "content": "b", "role": "user"},
    ]
    rows = MessageRows()
    assert validate_row(rows, {"messages": turns}, columns, "f:1") == ""
    assert rows.messages == [(Message("system", "s"), Message("user", "u"), Message("assistant", "a"))]
    assert rows.ignored == {"content", "role"}


def test_conversations_that_differ_beside_their_contents_are_no_repeats() -> None:
    rows = MessageRows()
    answers = [{}, {"weight": 0}, {"reasoning_content": "R"}, {"tool_calls": [CALL]}, {"weight": 1}]
    for more in answers:
        turns = [
            USER,
            {"role": "assistant", "content": "a", **more},
            USER,
            {"role": "assistant", "content": "b", **more},
        ]
        turns[-1].pop("weight", None)
        assert not validate_row(rows, {"m": turns}, Columns(messages="m"), "f:1")
    contents = [rows.content(row) for row in range(5)]
    assert len(set(contents)) == 4
    assert contents[0] == contents[4] == ("user", "u", "assistant", "a", "user", "u", "assistant", "b")
    assert len({rows.answer(row) for row in range(5)}) == 3
