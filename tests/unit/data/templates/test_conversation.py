"""Conversations that go through their chat template: reasoning, tools, and answers that are not trained."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from expert_cli.data.rows.columnar import Message, Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import TextRows
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.validation import validate_row
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.segment import Document
from expert_cli.data.templates.template import Template
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.errors import InputError
from tests.chat_templates import ALWAYS_THINKING, DATED, FORGETTING, MISTRAL_TOOLS, QWEN3, QWEN25, QWQ, of_trl
from tests.tiny import CHATML, template_for, tiny_tokenizer

HF = tiny_tokenizer()
BACKEND = HF.backend_tokenizer
END = "<|im_end|>"
TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def said(content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(arguments: object, name: str = "add") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def rendered(jinja: str, turns: list[dict[str, Any]], generate: bool, *, tools: Any = None, **more: Any) -> str:
    return str(
        HF.apply_chat_template(
            turns, tools=tools or None, chat_template=jinja, tokenize=False, add_generation_prompt=generate, **more
        )
    )


def made(jinja: str, **options: Any) -> Template:
    return template_for(BACKEND, "", own=ChatTemplate(jinja, rendered), eos_token=END, **options)


def row(turns: list[dict[str, Any]], **columns: Any) -> Rows:
    rows = MessageRows()
    read = Columns(messages="messages", **{name: name for name in columns})
    reason = validate_row(rows, {"messages": turns, **columns}, read, "rows.jsonl:7")
    assert not reason
    return rows


def document(
    jinja: str, turns: list[dict[str, Any]], *, options: dict[str, Any] | None = None, **columns: Any
) -> Document:
    return made(jinja, **options or {}).documents(row(turns, **columns))[0]


def text(pieces: Document) -> str:
    return "".join(piece.text for piece in pieces)


def trained(pieces: Document) -> list[str]:
    """The stretches that are trained."""
    return [
        "".join(piece.text for piece in run) for is_trained, run in groupby(pieces, lambda p: p.trained) if is_trained
    ]


THOUGHT = "<think>\nR\n</think>\n\nA"
CALLED = [user("q"), said("", tool_calls=[call({"a": 1, "b": "two"})]), {"role": "tool", "content": "3"}, said("three")]
CASES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "plain": ([user("q"), said("A")], ["A<|im_end|>"]),
    "a think block": ([user("q"), said(THOUGHT)], [f"{THOUGHT}<|im_end|>"]),
    "reasoning_content": ([user("q"), said("A", reasoning_content="R")], [f"{THOUGHT}<|im_end|>"]),
    "several turns": ([user("q"), said(THOUGHT), user("r"), said("B")], ["A<|im_end|>", "B<|im_end|>"]),
    "only reasoning": (
        [user("0?"), said("0</think>"), user("0?"), said("0")],
        ["<|im_end|>", "0<|im_end|>"],
    ),
    "an answer that is asked next": (
        [user("</think>"), said("yes or no"), user("no"), said("no")],
        ["yes or no<|im_end|>", "no<|im_end|>"],
    ),
    "line feeds that are taken off": ([user("q"), said("\n\nA\n")], ["A\n<|im_end|>"]),
    "a tool's answer from a user": ([user("q"), user("<tool_response>1</tool_response>"), said("A")], ["A<|im_end|>"]),
    "a call": (
        CALLED,
        [
            '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "two"}}\n</tool_call><|im_end|>',
            "three<|im_end|>",
        ],
    ),
    "a call as text": (
        [user("q"), said(None, tool_calls=[call('{"a":1}')])],
        ['<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call><|im_end|>'],
    ),
    "the first not trained": ([user("q"), said("A", weight=0), user("r"), said("B", weight=1.0)], ["B<|im_end|>"]),
    "reasoning that is not trained": (
        [user("q"), said(THOUGHT, weight=0), user("r"), said(THOUGHT, train=True)],
        [f"{THOUGHT}<|im_end|>"],
    ),
}


def for_transformers(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turns as every supported transformers renders them; its older versions read reasoning under one name alone."""
    names = {"thinking": "reasoning_content"}
    return [{names.get(name, name): "" if value is None else value for name, value in turn.items()} for turn in turns]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["", "with tools"])
@pytest.mark.parametrize(("turns", "expected"), CASES.values(), ids=CASES)
def test_qwen3_writes_what_it_writes_by_itself(
    turns: list[dict[str, Any]], expected: list[str], tools: list[Any] | None
) -> None:
    found = document(QWEN3, turns, **({"tools": tools} if tools else {}))
    whole = rendered(QWEN3, for_transformers(turns), False, tools=tools, enable_thinking=False)
    assert text(found) + "\n" == whole
    assert trained(found) == expected


def test_what_follows_a_prompt_without_thinking_is_the_answer() -> None:
    """The empty think block of a plain row is asked, not answered; a row that thinks is asked without it."""
    template = made(QWEN3)
    assert text(template.prompt("q")).endswith("assistant\n<think>\n\n</think>\n\n")
    plain, thought = (document(QWEN3, [user("q"), said(answer)]) for answer in ("A", THOUGHT))
    assert text(plain) == text(template.prompt("q")) + "A<|im_end|>"
    assert text(thought) == f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{THOUGHT}<|im_end|>"
    for answer, thinks in (("A", False), (THOUGHT, True)):
        template.documents(row([user("q"), said(THOUGHT), user("q"), said(answer)]))
        assert template.thought is thinks


def test_pairs_that_think_are_conversations_that_think() -> None:
    template = made(QWEN3)
    rows = PairRows(["q", "r"], ["", ""], [THOUGHT, "B"], origins=["x:1", "x:2"])
    assert rows.piece_columns(template) == []
    assert trained(template.documents(rows)[0]) == [f"{THOUGHT}<|im_end|>"]
    assert trained(template.documents(rows)[1]) == ["B<|im_end|>"]


@pytest.mark.parametrize("answer", ["A", THOUGHT], ids=["plain", "thinking"])
@pytest.mark.parametrize("jinja", [QWQ, ALWAYS_THINKING], ids=["qwq", "always thinking"])
def test_a_generation_prompt_that_opens_the_block(jinja: str, answer: str) -> None:
    template = made(jinja)
    found = document(jinja, [user("q"), said(answer)])
    assert text(found) + "\n" == rendered(jinja, [user("q"), said(answer)], False)
    asked = rendered(template.chat_template, [user("q")], True)
    assert text(template.prompt("q")) == asked
    assert [text(found).removeprefix(asked)] == trained(found)
    assert text(found).count("<think>") == (0 if (jinja, answer) == (QWQ, "A") else 1)


@pytest.mark.parametrize(
    ("jinja", "turns", "columns", "message"),
    [
        (CHATML, [user("q"), said("A", reasoning_content="R")], {}, 'does not show all of the last answer: "R"'),
        (CHATML, CALLED, {}, "does not show tool_calls"),
        (CHATML, [user("q"), said("A")], {"tools": TOOLS}, "does not show tools"),
        (
            "{% for m in messages if m.role != 'tool' %}{{ m.content + '<|im_end|>' }}{% endfor %}",
            [*CALLED[:1], said("B"), {"role": "tool", "content": "3", "name": "add"}, said("A")],
            {"tools": TOOLS},
            "does not show tools",
        ),
    ],
    ids=["unknown reasoning", "calls", "tools", "a tool's turn"],
)
def test_what_a_template_does_not_show_is_refused(
    jinja: str, turns: list[dict[str, Any]], columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl:7: the chat template ") as caught:
        document(jinja, turns, **columns)
    assert message in caught.value.message
    assert "prompt_template" in caught.value.hint


def test_rows_that_cannot_be_written_down_are_numbered() -> None:
    """Of plain conversations by their roles; of others by what they hold."""
    template = made("{% if messages[0].role != 'user' %}{{ raise_exception('users first') }}{% endif %}" + FORGETTING)
    rows = MessageRows()
    for turns in (
        [user("q"), said("a")],
        [said("a"), user("q"), said("b")],
        [user("q"), said("<think>R</think>a")],
        [user("q"), said("a", reasoning_content="R")],
        [user("</think>"), said("a")],
    ):
        assert not validate_row(rows, {"m": turns}, Columns(messages="m"), "x:1")
    found = template.refused(rows)
    assert set(found) == {1, 2, 3, 4}
    assert "users first" in found[1]
    assert all("does not show" in found[number] for number in (2, 3, 4))
    pairs = PairRows(["q"] * 3, [""] * 3, ["a", "<think>R</think>a", "b"], origins=["x"] * 3)
    assert set(template.refused(pairs)) == {1}
    assert template.refused(PairRows(["q"], [""], ["a"], origins=["x"])) == {}
    assert template.refused(TextRows(text=["</think>"], origins=["x"])) == {}


def test_a_turn_that_is_no_answer_cannot_be_left_out_of_everything() -> None:
    turns = [user("q", weight=0), said("A", weight=0), user("r"), said("B")]
    found = document(CHATML, turns)
    assert trained(found) == ["B<|im_end|>"]
    with pytest.raises(InputError, match="a turn that is no answer is not to be trained"):
        document(CHATML, turns, options={"trained": TrainedTurns(completion_only=False)})
    everything = document(CHATML, [user("q"), *turns[1:]], options={"trained": TrainedTurns(completion_only=False)})
    assert "A<|im_end|>" not in "".join(trained(everything))
    assert len(trained(everything)) == 2


def test_the_next_answer_is_asked_as_the_template_writes_what_was_said() -> None:
    messages = [Message("user", "q"), Message("assistant", THOUGHT), Message("user", "r")]
    asked = rendered(QWEN3, [user("q"), said(THOUGHT), user("r")], True, enable_thinking=False)
    assert text(made(QWEN3).prompt_messages(messages)) == asked


@pytest.mark.parametrize("jinja", [QWEN3, QWEN25, CHATML], ids=["qwen3", "qwen2.5", "chatml"])
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.text(max_size=6),
                st.sampled_from(["<think>", "</think>", "<|im_end|>", "\n", " ", "\ue0000\ue001", "{{", "user"]),
            ),
            max_size=5,
        ).map("".join),
        min_size=2,
        max_size=6,
    ).map(lambda texts: texts[: len(texts) // 2 * 2])
)
def test_every_conversation_is_the_templates_or_refused(jinja: str, contents: list[str]) -> None:
    """The text is that of the template but for control tokens, which stay text; every answer ends where it should."""
    turns = [(user if n % 2 == 0 else said)(content) for n, content in enumerate(contents)]
    rows = MessageRows()
    if validate_row(rows, {"m": turns}, Columns(messages="m"), "x:1"):
        return
    try:
        found = made(jinja).documents(rows)[0]
    except InputError:
        assert "</think>" in contents[-1], "the template takes nothing else away"
        return
    hidden = [{**turn, "content": turn["content"].replace("<|im_end|>", "<|im_\ufdd0end|>")} for turn in turns]
    expected = rendered(jinja, hidden, False, enable_thinking=False).replace("\ufdd0", "")
    assert expected.startswith(text(found))
    assert not expected[len(text(found)) :].strip()
    ends = sum(piece.text.count("<|im_end|>") for piece in found if piece.control)
    assert ends == rendered(jinja, hidden, False, enable_thinking=False).count("<|im_end|>")
    assert found[-1].trained
    assert len(trained(found)) == len(contents) // 2


def test_the_clock_does_not_run() -> None:
    template = made(DATED)
    assert text(template.prompt("q")).startswith("<|im_start|>system\nToday is 26 Jul 2024.<|im_end|>\n")
    assert rendered(template.chat_template, [user("q")], True) == text(template.prompt("q"))


# The template, its end token, its other control tokens, and what finds an answer of it by the markers around it.
LLAMA = of_trl("llama3_1")
HEADER = r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n"
SPOKEN: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "harmony": (
        of_trl("gptoss"),
        "<|return|>",
        ("<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|end|>"),
        r"<\|start\|>assistant((?:(?!<\|start\|>(?!assistant)).)*)",
    ),
    "qwen3": (QWEN3, END, (), r"<\|im_start\|>assistant\n(?:<think>\n\n</think>\n\n)?(.*?<\|im_end\|>)"),
    "llama": (LLAMA, "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>"), HEADER + r"(.*?<\|eot_id\|>)"),
    "llama, its own tools": (
        "{%- set builtin_tools = ['brave_search'] %}" + LLAMA,
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>"),
        HEADER + r"(.*?<\|eo[tm]_id\|>)",
    ),
    "mistral": (
        MISTRAL_TOOLS,
        "</s>",
        ("<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        r"\[/(?:INST|TOOL_RESULTS)\](.*?</s>)",
    ),
    # As above, but no token ends any answer.
    "mistral without ends": (
        MISTRAL_TOOLS.replace("</s>", ""),
        "</s>",
        ("<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        r"\[/(?:INST|TOOL_RESULTS)\](.*?)(?=\[(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS)\]|$)",
    ),
}


def speaking(name: str) -> Template:
    jinja, end, control, _ = SPOKEN[name]
    tokenizer = Tokenizer.from_str(BACKEND.to_str())
    tokenizer.add_special_tokens([end, *control])
    return template_for(tokenizer, "", own=ChatTemplate(jinja, rendered), eos_token=end)


def calling(*arguments: object, name: str = "add", **more: Any) -> dict[str, Any]:
    """An answer that calls a function once for each of these arguments."""
    return said("", tool_calls=[{**call(given, name), "id": "123456789"} for given in arguments], **more)


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": "123456789"}


FINAL, ANALYSIS = "<|channel|>final<|message|>", "<|channel|>analysis<|message|>"
COMMENTARY = " to=functions.add<|channel|>commentary json<|message|>"
SHORT: dict[str, tuple[str, list[dict[str, Any]], list[str]]] = {
    "analysis before calls": (
        "harmony",
        [user("q"), calling({"a": 1}, thinking="a"), result("3"), calling({"b": "m"}, thinking="c")],
        [
            f'{ANALYSIS}a<|end|><|start|>assistant{COMMENTARY}{{"a": 1}}<|call|>',
            f'{ANALYSIS}c<|end|><|start|>assistant{COMMENTARY}{{"b": "m"}}<|call|>',
        ],
    ),
    "analysis that the final takes away": (
        "harmony",
        [user("q"), calling({"a": 1}, thinking="R"), result("a"), said("a"), user("n"), said("c", thinking="s")],
        [
            f'{COMMENTARY}{{"a": 1}}<|call|>',
            f"{FINAL}a<|end|>",
            f"{ANALYSIS}s<|end|><|start|>assistant{FINAL}c<|return|>",
        ],
    ),
    "a call that is a message": (
        "llama, its own tools",
        [user("q"), calling({"q": "e"}, name="brave_search"), result("n"), said("e"), user("r"), calling({"a": 1})],
        [
            '<|python_tag|>brave_search.call(q="e")<|eom_id|>',
            "e<|eot_id|>",
            '{"name": "add", "parameters": {"a": 1}}<|eom_id|>',
        ],
    ),
    "no token ends": (
        "mistral without ends",
        [user("q"), calling({"a": 1}), result("3"), said("I"), user("N"), said("S")],
        [
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]',
            " I",
            " S</s>",
        ],
    ),
}


@pytest.mark.parametrize(("name", "turns", "expected"), SHORT.values(), ids=SHORT)
def test_what_the_model_writes_is_trained_however_short(
    name: str, turns: list[dict[str, Any]], expected: list[str]
) -> None:
    """The template's own words spell what is said before it is said."""
    assert trained(speaking(name).documents(row(turns, tools=TOOLS))[0]) == expected


def test_a_call_that_a_template_leaves_out_is_refused() -> None:
    """Harmony writes the first call of a turn alone."""
    with pytest.raises(InputError, match="does not show more than one of tool_calls"):
        speaking("harmony").documents(row([user("q"), calling({"a": 1}, {"a": 2})], tools=TOOLS))


LETTERS = st.text("acdefghilmnorstuINST", min_size=1, max_size=3)
CALLS = st.tuples(st.dictionaries(LETTERS, LETTERS, max_size=2).map(calling), LETTERS.map(result))
TALKS = st.lists(st.tuples(LETTERS, st.lists(CALLS, max_size=2), LETTERS), min_size=1, max_size=3)


@pytest.mark.parametrize("name", ["harmony", "qwen3", "llama", "mistral"])
@settings(max_examples=40, deadline=None)
@given(talk=TALKS, called=st.booleans())
def test_answers_are_those_between_the_markers(
    name: str, talk: list[tuple[str, list[tuple[dict[str, Any], dict[str, Any]]], str]], called: bool
) -> None:
    """Read by the markers of one template alone, which the contents cannot spell."""
    turns = [t for asked, calls, answer in talk for t in (user(asked), *(t for c in calls for t in c), said(answer))]
    if called and talk[-1][1]:
        turns = turns[:-2]  # ends with a call
    _, end, _, answers = SPOKEN[name]
    template = speaking(name)
    whole = rendered(template.chat_template, turns, False, tools=TOOLS)
    expected = re.findall(answers, whole, re.DOTALL)
    if not expected[-1].endswith((end, "<|call|>")):
        expected[-1] += end
    assert trained(template.documents(row(turns, tools=TOOLS))[0]) == expected


GIVEN: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = {
    "thinking on": ([user("q"), said("A")], {"enable_thinking": True}, ["<think>\n\n</think>\n\nA<|im_end|>"]),
    "several turns": (
        [user("q"), said("A"), user("r"), said(THOUGHT)],
        {"enable_thinking": True},
        ["A<|im_end|>", f"{THOUGHT}<|im_end|>"],
    ),
}


@pytest.mark.parametrize("by_row", [True, False], ids=["of the row", "of the manifest"])
@pytest.mark.parametrize(("turns", "given_", "expected"), GIVEN.values(), ids=GIVEN)
def test_a_template_is_given_what_row_or_manifest_give_it(
    turns: list[dict[str, Any]], given_: dict[str, Any], expected: list[str], by_row: bool
) -> None:
    """The text is that of apply_chat_template with the same arguments; a row's go before the manifest's."""
    kwargs = {name: value for name, value in given_.items() if value is not None}
    columns = {"chat_template_kwargs": given_} if by_row else {}
    against = {"enable_thinking": not kwargs["enable_thinking"]} if by_row and kwargs else {}
    found = document(QWEN3, turns, options={"chat_template_kwargs": against if by_row else kwargs}, **columns)
    whole = rendered(QWEN3, turns, False, **{"enable_thinking": False, **kwargs})
    assert text(found) + "\n" == whole
    assert trained(found) == expected


@pytest.mark.parametrize("thinks", [True, False])
def test_later_prompts_are_given_what_training_was_given(thinks: bool) -> None:
    template = made(QWEN3, chat_template_kwargs={"enable_thinking": thinks})
    asked = rendered(QWEN3, [user("q")], True, enable_thinking=thinks)
    assert text(template.prompt("q")) == asked == rendered(template.chat_template, [user("q")], True)
    assert template.fingerprint.endswith(f'kwargs {{"enable_thinking": {str(thinks).lower()}}}')


GREETED = "{{ greeting.words[0] + greeting.end if greeting else 'none' }}" + CHATML


def test_values_of_every_kind_reach_the_template() -> None:
    given_ = {"greeting": {"words": ['Say "ü\\n"', 1.5, None, True], "end": "\n"}}
    template = made(GREETED, chat_template_kwargs=given_)
    assert text(template.prompt("q")) == rendered(GREETED, [user("q")], True, **given_)
    (by_row,) = made(GREETED).documents(row([user("q"), said("A")], chat_template_kwargs=given_))
    assert text(by_row) + "\n" == rendered(GREETED, [user("q"), said("A")], False, **given_)


UNREAD = {
    "a name that the template does not read": ({"think": True}, 'reads no "think"; it reads'),
    "no name": ({"a b": 1}, 'reads no "a b"'),
}


@pytest.mark.parametrize(("given_", "message"), UNREAD.values(), ids=UNREAD)
def test_what_a_template_does_not_read_is_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        made(QWEN3, chat_template_kwargs=given_)
    rows = row([user("q"), said("A")], chat_template_kwargs=given_)
    assert message in made(QWEN3).refused(rows)[0]


def test_a_control_token_in_what_a_template_is_given_is_refused_of_the_manifest_and_text_of_a_row() -> None:
    given_ = {"greeting": {"words": [END], "end": "!"}}
    with pytest.raises(InputError, match=r"chat_template_kwargs holds the control token <\|im_end\|>"):
        made(GREETED, chat_template_kwargs=given_)
    (found,) = made(GREETED).documents(row([user("q"), said("A")], chat_template_kwargs=given_))
    assert next(piece.text for piece in found if not piece.control) == f"{END}!"


def test_pairs_are_given_what_their_row_gives() -> None:
    rows = PairRows()
    columns = Columns("prompt", "", "completion", chat_template_kwargs="chat_template_kwargs")
    for given_ in ({"enable_thinking": True}, '{"enable_thinking": true}', None, ""):
        fields = {"prompt": "q", "completion": "A", "chat_template_kwargs": given_}
        assert not validate_row(rows, fields, columns, "x:1")
    assert validate_row(rows, {"prompt": "q", "completion": "A", "chat_template_kwargs": [1]}, columns, "x:2") == (
        '"chat_template_kwargs" is a list, not an object'
    )
    documents = made(QWEN3).documents(rows)
    thinking, plain = (rendered(QWEN3, [user("q")], True, enable_thinking=flag) for flag in (True, False))
    assert [text(found) for found in documents] == [
        *2 * [f"{thinking}<think>\n\n</think>\n\nA<|im_end|>"],
        *2 * [f"{plain}A<|im_end|>"],
    ]
