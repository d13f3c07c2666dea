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
            id="response named: the others recognized",
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
        pytest.param(
            ["text", "train"],
            ColumnMapping(text="text"),
            Columns(text="text", train="train"),
            None,
            id="flag of a text",
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
            ["instructions", "stub", "solution"],
            NOTHING,
            "rows.jsonl: no column is recognized as the response; columns: instructions, stub, solution",
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
            ["text", "context"], NOTHING, "no column is recognized as the response", "response", id="text and input"
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
        ({"weight": "0"}, NOT_TRAINED),
        ({"weight": " 0.0"}, NOT_TRAINED),
        ({"train": "False"}, NOT_TRAINED),
        ({"weight": 0, "answer": None}, NOT_TRAINED),
        ({"weight": 1, "train": True}, ""),
        ({"weight": 1.0, "train": None}, ""),
        ({"weight": "1", "train": ""}, ""),
        ({"weight": 0.5}, '"weight" is 0.5: 0 and false, 1 and true are known'),
        ({"weight": 0, "train": "no"}, "\"train\" is 'no': 0 and false, 1 and true are known"),
        ({"train": [False]}, '"train" is [False]: 0 and false, 1 and true are known'),
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
        pytest.param([], "no assistant turn", id="empty"),
        pytest.param(None, '"messages" is null', id="null"),
        pytest.param("hi", '"messages" is not JSON', id="text"),
        pytest.param('{"role": "user"}', '"messages" is an object, not a list of messages', id="an object as text"),
        pytest.param(
            '[{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]',
            (Message("user", "u"), Message("assistant", "a")),
            id="messages as text",
        ),
        pytest.param(
            [{"role": "developer", "content": "d"}, {"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}],
            (Message("developer", "d"), Message("user", "u"), Message("assistant", "a")),
            id="a developer",
        ),
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
            [{"from": "human", "value": "u"}, {"from": "function_call", "value": '{"arguments": {}}'}],
            'a message of the role "function_call" is not a call with its name as JSON',
            id="a call without a name",
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
        pytest.param([{"role": "user"}], "a message's content is missing", id="no content"),
        pytest.param(
            [{"role": "user", "content": [{"type": "text"}]}],
            "a part of a message's content is missing",
            id="a part that says nothing",
        ),
        pytest.param(
            [{"role": "user", "content": ["u", 7]}],
            "a part of a message's content is a number, not text",
            id="a part that is a number",
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
    rows = MessageRows()
    reason = validate_row(rows, {"messages": turns}, Columns(messages="messages"), "f:1")
    assert (reason, rows.messages) == ((expected, []) if isinstance(expected, str) else ("", [expected]))
    said = json.loads(turns) if isinstance(turns, str) and rows.messages else turns
    assert rows.trailing == [len(said) - len(expected) for _ in rows.messages]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ({"content": "a", "weight": 0}, Message("assistant", "a", trained=False)),
        ({"content": "a", "weight": 1.0, "train": True}, Message("assistant", "a", trained=True)),
        ({"content": "a", "train": False, "weight": 1}, Message("assistant", "a", trained=False)),
        ({"content": "a", "loss": False}, Message("assistant", "a", trained=False)),
        ({"content": "a", "loss_mask": 0, "masked": True}, Message("assistant", "a", trained=False)),
        ({"content": "a", "loss_mask": 1, "masked": False, "loss": True}, Message("assistant", "a", trained=True)),
        ({"content": "a", "masked": 1, "weight": 1}, Message("assistant", "a", trained=False)),
        ({"content": "a", "weight": None, "tool_calls": None, "name": None}, Message("assistant", "a")),
        ({"content": "a", "tool_calls": []}, Message("assistant", "a")),
        ({"content": "a", "reasoning_content": "R"}, Message("assistant", "a", fields='{"reasoning_content": "R"}')),
        ({"content": "a", "thinking": "R"}, Message("assistant", "a", fields='{"thinking": "R"}')),
        ({"content": None, "tool_calls": [CALL]}, Message("assistant", "", fields=CALLING)),
        ({"tool_calls": [CALL]}, Message("assistant", "", fields=CALLING)),
        ({"content": "a", "weight": 0.5}, 'a message\'s "weight" is 0.5: 0 and false, 1 and true are known'),
        ({"content": "a", "train": "no"}, "a message's \"train\" is 'no': 0 and false, 1 and true are known"),
        ({"content": "a", "loss": 0.7}, 'a message\'s "loss" is 0.7: 0 and false, 1 and true are known'),
        (
            {"content": "a", "loss_mask": [0, 1]},
            'a message\'s "loss_mask" is [0, 1]: 0 and false, 1 and true are known',
        ),
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
        (
            {"content": "a", "thinking": "R", "reasoning": "R"},
            Message("assistant", "a", fields='{"thinking": "R", "reasoning": "R"}'),
        ),
        ({"content": "a", "value": "a", "from": "gpt"}, Message("assistant", "a")),
        ({"content": "a", "value": "b"}, 'a message\'s "value" is not its "content"'),
        ({"content": None, "tool_calls": [CALL], "value": "b"}, 'a message\'s "value" is not its "content"'),
        ({"content": "a", "from": "human"}, 'a message\'s "from" is not its "role"'),
        ({"content": "a", "from": "Ada"}, Message("assistant", "a")),
        ({"content": "a", "reasoning_content": ["R"]}, 'a message\'s "reasoning_content" is a list'),
        (
            {"content": None, "function_call": {"name": "f", "arguments": {"a": 1}}},
            Message("assistant", "", fields=CALLING),
        ),
        (
            {"content": "a", "function_call": {"name": "f"}, "tool_calls": [CALL]},
            'a message has "function_call" beside "tool_calls", or is no answer',
        ),
        (
            {"content": [{"type": "thinking", "thinking": "R"}, {"type": "text", "text": "a"}]},
            Message("assistant", "a", fields='{"reasoning_content": "R"}'),
        ),
        ({"content": "a", "images": ["x.png"]}, 'a message has "images", which cannot be trained'),
        ({"content": "a", "reasoning_content": "\ud800"}, "a message is not Unicode text (half of a surrogate pair)"),
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
        ({"role": "user", "content": "u", "train": False}, ""),
        ({"role": "user", "content": "u", "train": True}, ""),
        ({"role": "system", "content": "u", "weight": 1}, ""),
        ({"role": "user", "content": "u", "masked": True, "loss": 0, "loss_mask": False}, ""),
        ({"role": "user", "content": "u", "masked": False}, ""),
        *(
            (
                {"role": role, "content": "u", name: value},
                f'a message of the role "{role}" has "{name}", which only answers have',
            )
            for role in ("user", "system", "tool")
            for name, value in (
                ("reasoning_content", "R"),
                ("thinking", "R"),
                ("reasoning", "R"),
                ("tool_calls", [CALL]),
            )
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


def test_a_conversation_without_a_trained_answer_is_bad() -> None:
    turns = [USER, {"role": "assistant", "content": "a", "weight": 0}]
    reason = validate_row(MessageRows(), {"m": turns}, Columns(messages="m"), "f:1")
    assert reason == "no assistant turn is to be trained"


def test_fields_that_nothing_reads_are_remembered() -> None:
    rows = MessageRows()
    turns = [
        {**USER, "id": 7, "name": "Ada", "note": None, "from": "Ada"},
        {"role": "tool", "content": "1", "name": "f", "loss": 0},
    ]
    validate_row(rows, {"m": [*turns, {"role": "assistant", "content": "a"}]}, Columns(messages="m"), "f:1")
    assert rows.ignored == {"id", "name", "from"}
    assert rows.messages[0][1] == Message("tool", "1", trained=False, fields='{"name": "f"}')


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"tools": [TOOL], "system": "s"}, [Message("tools", json.dumps([TOOL])), Message("system", "s")]),
        ({"tools": json.dumps([{"name": "f"}])}, [Message("tools", '[{"name": "f"}]')]),
        ({"tools": "", "system": None}, []),
        ({"tools": [], "system": ""}, []),
        ({"tools": "not JSON"}, '"tools" is not JSON'),
        ({"tools": [{"type": "function"}]}, '"tools" is not a list of tools with names'),
        ({"system": 5}, '"system" is a number, not text'),
    ],
)
def test_columns_beside_the_messages(beside: dict[str, object], expected: list[Message] | str) -> None:
    rows = MessageRows()
    columns = choose_columns(["messages", *beside], ColumnMapping(), "rows")
    reason = validate_row(rows, {"messages": [USER, {"role": "assistant", "content": "a"}], **beside}, columns, "f:1")
    assert (reason or list(rows.messages[0][:-2])) == expected


def test_two_system_messages_are_one_too_many() -> None:
    turns = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "a"}]
    columns = Columns(messages="m", system="system")
    reason = validate_row(MessageRows(), {"m": turns, "system": "t"}, columns, "f:1")
    assert reason == '"system" and the first message are both a system message'


def test_columns_that_are_not_read() -> None:
    names = ["question", "system", "answer", "source"]
    assert choose_columns(names, ColumnMapping(), "rows").ignored(names) == ["source"]
    named = ColumnMapping(instruction="question", response="answer")
    assert choose_columns(names, named, "rows").ignored(names) == ["system", "source"]
    assert (
        str(choose_columns(["system", "messages"], ColumnMapping(), "rows")) == "messages <- messages, system <- system"
    )


TALK = (Message("user", "h"), Message("assistant", "i"), Message("user", "q"), Message("assistant", "a"))
PAIR_ROW = {"instruction": "q", "input": "", "output": "a"}
TURN = {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**PAIR_ROW, "history": [["h", "i"]]}, TALK),
        ({**PAIR_ROW, "history": [["h", "i"]], "system": "s"}, (Message("system", "s"), *TALK)),
        ({**PAIR_ROW, "history": [], "system": ""}, ()),
        ({**PAIR_ROW, "history": None}, ()),
        ({**PAIR_ROW, "history": "h"}, '"history" is text, not a list of [question, answer]'),
        ({**PAIR_ROW, "history": ["h", "i"]}, '"history" is not a list of [question, answer]'),
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
        ({"prompt": [USER], "completion": [USER]}, "no assistant turn"),
        ({"prompt": [USER], "completion": None}, '"completion" is null'),
        ({"prompt": [USER], "completion": []}, "no assistant turn"),
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
        (False, 1, ""),
        (True, 2, ""),
        (None, 2, ""),
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
