"""What one raw row means: each form of files, and why a row is bad."""

from __future__ import annotations

import json
from math import nan
from typing import Any

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import BadRow, Columns, choose_columns
from expert_cli.data.rows import TRAILING, Row, to_row
from tests.chat_templates import of_trl
from tests.documents import written
from tests.row_forms import FORMS, columns_of, mapping_of
from tests.tiny import template_for, tiny_tokenizer

HF = tiny_tokenizer()
END = "<|im_end|>"
QWEN = of_trl("qwen3")
DEVELOPED = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
DEVELOPED += "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
"""Shows a developer's turn, which Qwen's leaves out."""
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ADD = {"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def turn(role: str, content: str = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


ASKED, ANSWER, COUNT = turn("user", "How many?"), turn("assistant", "Four."), turn("system", "Count.")
CALLING = turn("assistant", tool_calls=[ADD])
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>'
MEANT: dict[str, tuple[list[dict[str, Any]], Any, list[str]]] = {
    "messages": ([COUNT, ASKED, ANSWER], None, ["Four."]),
    "messages of a developer": ([turn("developer", "Count."), ASKED, ANSWER], None, ["Four."]),
    "messages as JSON text": ([ASKED, ANSWER], None, ["Four."]),
    "messages of text parts": ([ASKED, ANSWER], None, ["Four."]),
    "OpenAI": (
        [ASKED, turn("assistant", "Three."), turn("user", "Sure?"), CALLING, turn("tool", "4"), ANSWER],
        TOOLS,
        [CALLED, "Four."],
    ),
    "ShareGPT": ([COUNT, ASKED, ANSWER], None, ["Four."]),
    "ShareGPT, calls": (
        [COUNT, ASKED, CALLING, turn("tool", "4"), ANSWER],
        [{"name": "add", "parameters": {"type": "object"}}],
        [CALLED, "Four."],
    ),
    "own names": ([ASKED, ANSWER], None, ["Four."]),
    "question and answer": ([turn("user", "How many?\n\n4 boats"), ANSWER], None, ["Four."]),
    "prompt and completion": ([ASKED, ANSWER], None, ["Four."]),
    "prompt and completion of messages": ([ASKED, ANSWER], None, ["Four."]),
    "Alpaca with a system message": ([COUNT, turn("user", "How many?\n\n4 boats"), ANSWER], None, ["Four."]),
    "prompt and completion of messages, with tools": ([ASKED, CALLING], TOOLS, [CALLED]),
}
"""The conversation that the example of a form means, its tools, and what is trained."""


def read(fields: dict[str, Any], columns: Columns | None = None, mapping: ColumnMapping = ColumnMapping()) -> Row | str:
    """Return the row that fields mean, or why it is none."""
    try:
        return to_row(fields, columns or choose_columns(list(fields), mapping, "x"), mapping, "x:1")
    except BadRow as error:
        return str(error)


def test_every_form_is_held_against_what_it_means() -> None:
    assert {*MEANT, "document", "axolotl, input_output"} == set(FORMS)
    assert read(FORMS["document"].row) == Row("x:1", text="Once upon a time")
    assert read(FORMS["axolotl, input_output"].row) == Row("x:1", segments=(("How many?", False), ("Four.", True)))


@pytest.mark.parametrize("name", MEANT)
def test_a_form_is_read_as_the_conversation_that_it_means(name: str) -> None:
    form, (turns, tools, trained) = FORMS[name], MEANT[name]
    jinja = QWEN if turns[0]["role"] != "developer" else DEVELOPED
    row = read(dict(form.row), columns_of(form), mapping_of(form))
    assert isinstance(row, Row)
    documents = written(template_for(HF, "", given=jinja), row)
    whole = HF.apply_chat_template(turns, tools=tools, chat_template=jinja, tokenize=False, enable_thinking=False)
    assert documents[-1].replace("⟦", "").replace("⟧", "") + "\n" == whole
    assert [part.partition(END)[0] for text in documents for part in text.split("⟦")[1:]] == trained


PAIR = Columns("pair", "question", "context", "answer")
Q = {"question": "q", "answer": "a"}
BAD: dict[str, tuple[Columns, dict[str, Any]]] = {
    '"answer" is missing': (PAIR, {"question": "q"}),
    '"answer" is null': (PAIR, {"question": "q", "answer": None}),
    '"answer" is a number, not text': (PAIR, {"question": "q", "answer": 3}),
    '"answer" is an object, not text: write it as JSON text': (PAIR, {"question": "q", "answer": {"a": 1}}),
    '"answer" is empty': (PAIR, {"question": "q", "answer": " \r\n"}),
    '"answer" is not Unicode text (half of a surrogate pair)': (PAIR, {"question": "q", "answer": "\ud800"}),
    '"question" is missing': (PAIR, {"answer": "a"}),
    '"context" is a list, not text: write it as JSON text': (PAIR, {**Q, "context": ["t"]}),
}


@pytest.mark.parametrize(("reason", "row"), BAD.items(), ids=BAD)
def test_a_pair_is_bad_for_one_reason(reason: str, row: tuple[Columns, dict[str, Any]]) -> None:
    assert read(row[1], row[0]) == reason


def conversation(turns: object, **more: Any) -> Any:
    return read({"messages": turns, **more})


U, A = turn("user", "u"), turn("assistant", "a")


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([turn("system", "s"), U, {**A, "weight": 1}], [turn("system", "s"), U, A]),
        ([{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], [U, A]),
        (
            [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "thanks"}],
            [U, A],
        ),
        (
            [
                {"from": "human", "value": "u"},
                {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
                {"from": "observation", "value": "1"},
                {"from": "gpt", "value": [{"type": "text", "text": "a"}, {"text": "b"}]},
            ],
            [U, turn("assistant", tool_calls=[CALL]), turn("tool", "1"), turn("assistant", "ab")],
        ),
        ([U], "no assistant turn"),
        ("hi", '"messages" is not JSON'),
        (None, '"messages" is null'),
        ([{"from": "human", "value": "u"}, {"from": "function_call", "value": "f(1)"}], '"function_call" is not JSON'),
        (
            [turn("user") | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            'a message\'s content has a part of the type "image_url", but only text is trained',
        ),
        ([U, A | {"content": [{"type": None, "text": "a"}]}], [U, A]),
        (
            [turn("user") | {"content": [{"type": 1}]}],
            'a message\'s content has a part of the type "1", but only text is trained',
        ),
        (
            [U, turn("assistant", tool_calls=[{"name": "f", "arguments": {"a": nan}}])],
            "a message contains a value that JSON cannot represent",
        ),
        (["hi"], "a message is text, not an object"),
        (
            [turn("narrator", "1")],
            'a message has the role "narrator", which is not known; name its meaning in "field_mapping.roles"',
        ),
        ([U, turn("assistant", " ")], "the last assistant turn is empty"),
        ([U, {**A, "weight": 0}], "no assistant turn is to be trained"),
    ],
)
def test_a_conversation_ends_with_its_last_answer(turns: Any, expected: list[dict[str, Any]] | str) -> None:
    row = conversation(turns)
    if isinstance(expected, str):
        assert row == expected
        return
    assert row.messages == expected
    assert (TRAILING in row.unread) == (len(turns) > len(expected))


@pytest.mark.parametrize(
    ("said", "expected", "trained"),
    [
        ({"content": "a", "weight": 0}, A, False),
        ({"content": "a", "train": False, "weight": 1}, A, False),
        *(({"content": "a", name: 0}, A, False) for name in ("loss", "loss_weight", "trainable", "training")),
        ({"content": "a", "loss": False}, A, False),
        ({"content": "a", "loss_mask": 1, "masked": False, "loss": True}, A, True),
        ({"content": "a", "weight": None, "tool_calls": None, "name": None}, A, True),
        ({"content": "a", "tool_calls": []}, A, True),
        ({"content": "a", "reasoning_content": "R"}, {**A, "reasoning_content": "R"}, True),
        ({"content": None, "tool_calls": [CALL]}, turn("assistant", tool_calls=[CALL]), True),
        ({"content": "a", "value": "a", "from": "gpt"}, A, True),
        ({"content": "a", "weight": 0.5}, 'a message\'s "weight" is 0.5: only 0, 1, false and true are allowed', None),
        ({"content": "a", "images": ["x.png"]}, 'a message has "images", but only text is trained', None),
        (
            {"content": "a", "train_detail": [1]},
            'a message has "train_detail", but no part of a message is marked: write segments',
            None,
        ),
        ({"function_calls": "f()"}, "a message's content (beside function_calls, which nothing reads) is null", None),
        ({"content": "a", "tool_calls": "f()"}, 'a message\'s "tool_calls" is text', None),
        ({"content": "a", "tool_calls": [{}]}, 'a message\'s "tool_calls" is not a list of calls with names', None),
        ({"content": "a", "reasoning_content": ["R"]}, 'a message\'s "reasoning_content" is a list', None),
        ({"content": "a", "reasoning_content": "\ud800"}, "a message contains a value that JSON cannot represent", None),
    ],
)  # fmt: skip
def test_what_an_answer_has_beside_its_content(
    said: dict[str, object], expected: dict[str, Any] | str, trained: bool | None
) -> None:
    row = conversation([U, turn("assistant", "z"), U, {"role": "assistant", **said}])
    assert row == expected if isinstance(expected, str) else (row.messages[-1], row.trained[-1]) == (expected, trained)


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize(("name", "value"), [("reasoning_content", "R"), ("tool_calls", [CALL])])
def test_what_only_answers_may_have(role: str, name: str, value: Any) -> None:
    assert conversation([turn(role, "u", **{name: value}), U, A]) == (
        f'a message of the role "{role}" has "{name}", which only answers have'
    )


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"tools": [TOOL], "system": "s"}, ([TOOL], {}, "system")),
        ({"tools": json.dumps([{"name": "f"}])}, ([{"name": "f"}], {}, "user")),
        ({"tools": [json.dumps(TOOL)]}, ([TOOL], {}, "user")),
        ({"tools": "", "system": None}, ((), {}, "user")),
        ({"chat_template_kwargs": {"a": 1, "b": None}}, ((), {"a": 1}, "user")),
        ({"tools": "not JSON"}, '"tools" is not JSON'),
        ({"tools": [{}]}, '"tools" is not a list of tools with names'),
        ({"system": 5}, '"system" is a number, not text'),
        ({"chat_template_kwargs": "[1]"}, '"chat_template_kwargs" is a list, not an object'),
    ],
)
def test_columns_beside_the_messages(beside: dict[str, object], expected: Any) -> None:
    row = conversation([U, A], **beside)
    assert (
        row == expected if isinstance(expected, str) else (row.tools, row.kwargs, row.messages[0]["role"]) == expected
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"instruction": "u", "input": "", "output": "a", "system": "s"}, [turn("system", "s"), U, A]),
        ({"prompt": [U], "completion": [A]}, [U, A]),
        ({"prompt": [U], "completion": "a"}, [U, A]),
        ({"prompt": json.dumps([U]), "completion": json.dumps([A])}, [U, A]),  # of CSV
        ({"prompt": json.dumps([U]), "completion": json.dumps([A])[:-2]}, '"completion" is not JSON'),
        ({"prompt": '[{"role": 1} ?', "completion": "a"}, [turn("user", '[{"role": 1} ?'), A]),
        ({"prompt": [U, A, U], "completion": [A, U]}, [U, A, U, A]),
        (
            {"prompt": [U], "completion": [A], "context": "c"},
            '"prompt" is a list of messages, beside a column of the input or of a database',
        ),
    ],
)
def test_what_stands_around_a_question(row: dict[str, Any], expected: list[dict[str, Any]] | str) -> None:
    found = read(row)
    assert found == expected if isinstance(expected, str) else isinstance(found, Row) and found.messages == expected


def test_of_a_prompt_no_answer_is_trained() -> None:
    row = read({"prompt": [U, A, U], "completion": [A]})
    assert isinstance(row, Row)
    assert row.trained == [False, False, False, True]


@pytest.mark.parametrize(
    ("segments", "reason"),
    [
        (3, '"segments" is a number, not a list of segments'),
        (["x"], "a segment is text, not an object"),
        ([{"text": "x"}], "a segment's label is missing"),
        ([{"text": "x", "label": 1}], "a segment's label is a number, not true or false"),
        ([{"label": True}], "a segment's text is missing"),
        ([{"text": "x", "label": False}, {"text": "", "label": True}], "no segment is to be trained"),
    ],
)
def test_segments_are_bad_for_one_reason(segments: object, reason: str) -> None:
    assert read({"segments": segments}, Columns("segments", segments="segments")) == reason


def test_own_names_go_before_the_usual_ones() -> None:
    """A turn may have both; what stands under the usual ones is then not read, and named."""
    named = ColumnMapping(role="speaker", content="text", roles=(("bot", "assistant"), ("developer", "system")))
    turns = [
        {"speaker": "developer", "text": "s"},
        {"role": "user", "content": "u"},
        {"speaker": "bot", "text": "a", "content": "b", "role": "user"},
    ]
    row = read({"messages": turns}, mapping=named)
    assert isinstance(row, Row)
    assert row.messages == [turn("system", "s"), U, A]
    assert row.unread == {"messages[].content", "messages[].role"}


def test_conversations_that_differ_beside_their_contents_are_no_repeats() -> None:
    answers: list[dict[str, Any]] = [
        {},
        {"weight": 0},
        {"reasoning_content": "R"},
        {"tool_calls": [CALL]},
        {"weight": 1},
    ]
    rows = [
        conversation([U, {**A, **more}, U, turn("assistant", "b", **({} if "weight" in more else more))])
        for more in answers
    ]
    assert len({row.content() for row in rows}) == 4
    assert rows[0].content() == rows[4].content() == ("user", "u", "assistant", "a", "user", "u", "assistant", "b")
    assert len({row.answer for row in rows}) == 3


def test_what_a_row_asks() -> None:
    pair = read({"question": "q", "context": "c", "answer": "a"})
    chat = conversation([turn("system", "s"), U, A, turn("user", "v"), turn("assistant", "b")])
    text = read({"text": "once"})
    assert isinstance(pair, Row)
    assert isinstance(text, Row)
    assert (pair.question, pair.answer, pair.content()) == (("q", "c"), "a", ("q", "c", "a"))
    assert (chat.question, chat.answer) == (("u\nassistant: a\nv", "s"), "b")
    assert (text.question, text.answer) == (("once", ""), "once")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("image", "only text is trained"),
        ("audio", "only text is trained"),
        ("history", "earlier turns are read from messages alone"),
    ],
)
def test_a_row_with_a_picture_a_sound_or_a_history_is_bad_and_one_without_is_read(name: str, why: str) -> None:
    assert conversation([U, A], **{name: "boat.png"}) == f'"{name}" is not empty, but {why}'
    for nothing in (None, "", [], {}):
        assert conversation([U, A], **{name: nothing}).answer == "a"


@pytest.mark.parametrize("nothing", ["", " \n", "\u200b", "\ufeff\u200d "])
def test_an_answer_that_shows_nothing_is_none(nothing: str) -> None:
    empty = turn("assistant", nothing)
    assert conversation([U, empty, U, A]) == "an earlier assistant turn is empty"
    assert conversation([U, empty]) == "the last assistant turn is empty"
    assert read({"instruction": "?", "output": nothing}) == '"output" is empty'
    assert conversation([U, {**empty, "weight": 0}, U, A]).trained == [False, False, False, True]


@pytest.mark.parametrize("said", ["\u200bé", "👍", "．"])
def test_an_answer_that_shows_something_is_one(said: str) -> None:
    assert conversation([U, turn("assistant", said)]).answer == said


# Tools and calls are what their author meant, whatever a table or an encoder made of them -------------------------------


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": None, "parameters": parameters}}


def calling(arguments: Any, tools: list[Any] | None = None) -> Any:
    function = {"name": "find", "arguments": arguments} if arguments != "absent" else {"name": "find"}
    calls = [{"type": "function", "function": function}]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    return conversation(turns, tools=tools)


def arguments_of(row: Row) -> Any:
    return row.messages[-1]["tool_calls"][0]["function"]["arguments"]


def test_a_table_gives_no_tool_the_parameters_of_others() -> None:
    optional = {"type": ["number", "null"], "default": None, "enum": [1, None]}
    row = calling({}, [tool("weather", city={"type": "string"}, a=None, b=None), tool("add", a=optional, city=None)])
    properties = [one["function"]["parameters"]["properties"] for one in row.tools]
    assert properties == [{"city": {"type": "string"}}, {"a": optional}]
    assert all("description" not in one["function"] for one in row.tools)


NULLABLE = (
    {"type": ["string", "null"]},
    {"type": "null"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"enum": ["a", None]},
)


@pytest.mark.parametrize("schema", NULLABLE)
def test_an_argument_is_null_where_its_tool_says_that_it_may_be(schema: Any) -> None:
    row = calling({"a": None}, [tool("find", a=schema)])
    assert (arguments_of(row), row.unread) == ({"a": None}, frozenset())


@pytest.mark.parametrize("tools", [None, [tool("find", a={"type": "string"})], [tool("find")], [tool("other", a={})]])
@pytest.mark.parametrize("given", [{"a": None, "b": {"c": None}}, '{"a": null, "b": {"c": null}}'])
def test_a_null_that_no_tool_allows_is_left_out_and_told(tools: Any, given: Any) -> None:
    row = calling(given, tools)
    assert (arguments_of(row), row.unread) == ({"b": {"c": None}}, {"arguments of calls that are null"})


@pytest.mark.parametrize("given", ["", " ", None, {}, "absent"])
def test_no_arguments_are_an_empty_object(given: Any) -> None:
    row = calling(given)
    assert (arguments_of(row), row.unread) == ({}, frozenset())


def test_json_text_is_the_object_that_it_says() -> None:
    assert arguments_of(calling('{"a":2}')) == {"a": 2}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('"{\\"a\\": 2}"', "JSON text within JSON text"),
        ("a=2", "is not JSON"),
        ("[1]", "not an object"),
        ([1], "not an object"),
        (3, "not an object"),
    ],
)
def test_other_arguments_are_a_bad_row(given: Any, reason: str) -> None:
    assert reason in calling(given)
