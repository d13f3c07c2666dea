"""Unusual rows: what is trained of each is exactly the answer, or the row is named, or the set is refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unusual_world import lines, prepare, row, says

USER = {"role": "user", "content": "ask"}
SAY = {"role": "assistant", "content": "say"}
SYSTEM = {"role": "system", "content": "be kind"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    """Return the row of one conversation."""
    return {"messages": list(messages), **more}


def good(*rows: Any) -> list[Any]:
    """Return rows with 200 good ones after them: few enough bad ones are left out and counted."""
    return [*rows, *(row(n) for n in range(200))]


def chats(*rows: Any) -> list[Any]:
    """Return conversations with 200 good ones after them."""
    return [*rows, *(chat(USER, SAY) for _ in range(200))]


CHATML = "<|im_start|>user\nask<|im_end|>\n<|im_start|>assistant\nsay<|im_end|>\n"
# id -> rows, what is beside the path in "dataset", settings, the answers that are trained, what must be said
READ: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any], list[str], str]] = {
    "a system message": ([chat(SYSTEM, USER, SAY)], {}, {}, ["say"], ""),
    "two turns": ([chat(USER, SAY, USER, {**SAY, "content": "more"})], {}, {}, ["say|more"], ""),
    "an answer of no weight": ([chat(USER, {**SAY, "weight": 0}, USER, {**SAY, "content": "more"})], {}, {}, ["more"], ""),
    "an input that is null": ([row(1, input=None)], {}, {}, says(1), ""),
    "an input in the second row alone": ([row(1), row(2, input="with this")], {}, {}, says(1, 2), ""),
    "blanks around an answer": ([row(1, output="  x \n")], {}, {}, ["  x \n"], ""),
    "a zero character": ([row(1, output="a\0b")], {}, {}, ["a\0b"], ""),
    "all planes of Unicode": ([row(1, output="a é 漢 😀 \U0010fffd")], {}, {}, ["a é 漢 😀 \U0010fffd"], ""),
    "an answer that looks like JSON": ([row(1, output='{"a": [1, 2]}')], {}, {}, ['{"a": [1, 2]}'], ""),
    "an answer that looks like a template": ([row(1, output="{{ 7 / 0 }} {% raw %}")], {}, {}, ["{{ 7 / 0 }} {% raw %}"], ""),
    "columns by name": ([{"q": "ask", "a": "say"}], {"field_mapping": {"instruction": "q", "response": "a"}}, {}, ["say"], ""),
    "upper-case columns by name": ([{"Q": "ask", "A": "say"}], {"field_mapping": {"instruction": "Q", "response": "A"}}, {}, ["say"], ""),
    "whole documents": ([{"text": "one"}, {"text": "two"}], {}, {}, ["one", "two"], ""),
    "whole documents by name": ([{"body": "one"}], {"text_field": "body"}, {}, ["one"], ""),
    "ChatML in one text": ([{"text": CHATML}], {}, {}, ["say"], ""),
    "alpaca in one text": ([{"text": "### Instruction:\nask\n\n### Response:\nsay"}], {}, {}, ["say"], ""),
    "everything trained": ([{"text": CHATML}], {}, {"completion_only_loss": False}, ["<|im_start|>user\nask|<|im_start|>assistant\nsay"], ""),
    "rows that repeat": ([row(1), row(1), row(2)], {"filters": {"deduplicate": True}}, {}, says(1, 2), "1 "),
    "answers that repeat, kept": ([row(1), row(1)], {}, {}, says(1, 1), ""),
    "rows that are too short": ([row(1), row(2, output="x" * 50)], {"filters": {"min_length": 40}}, {}, ["x" * 50], "1 "),
    "rows that are too long": ([row(1), row(2, output="x" * 50)], {"filters": {"max_length": 40}}, {}, says(1), "1 "),
    "one conversation that the assistant begins": (chats(chat(SAY)), {}, {}, ["say"] * 201, ""),
    "one conversation without an answer": (chats(chat(USER)), {}, {}, ["say"] * 200, "1 "),
    "one message whose role is a list": (chats(chat({"role": ["user"], "content": "ask"}, SAY)), {}, {}, ["say"] * 200, "1 "),
    "one message without words": (chats(chat(USER, {"role": "assistant"})), {}, {}, ["say"] * 200, "1 "),
    "one row without the column": (good({"instruction": "ask"}), {}, {}, says(*range(200)), "1 "),
    "spare keys of a message": ([chat({**USER, "id": 7}, {**SAY, "model": "x"})], {}, {}, ["say"], "id|model"),
    "an unknown filter": ([row(1)], {"filters": {"min_len": 3}}, {}, says(1), r"min_len"),
    "a score beside a conversation": ([chat(USER, SAY, score=0.5)], {}, {}, ["say"], "score"),
}  # fmt: skip

# id -> rows, what is beside the path in "dataset", settings, what the error says
REFUSED: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any], str]] = {
    "calls of tools": ([chat(USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]})], {}, {}, r'does not show all of the last answer: "f"'),
    "thoughts that the template drops": ([chat(USER, {**SAY, "reasoning_content": "hm"})], {}, {}, r"template does not show all of the last answer"),
    "tools that the template drops": ([chat(USER, SAY, tools=[{"type": "function"}])], {}, {}, r"tools"),
    "pairs of preference": ([{"prompt": "ask", "chosen": "good", "rejected": "bad"}], {}, {}, r"chosen|column"),
    "one column of two named": ([{"q": "ask", "a": "say"}], {"field_mapping": {"instruction": "q"}}, {}, r"response|a"),
    "a text column that is not there": ([{"text": "x"}], {"text_field": "body"}, {}, r"body"),
    "filters that leave nothing": ([row(1)], {"filters": {"min_length": 1000}}, {}, r"no|0|nothing"),
    "a split that takes all": ([row(1)], {"validation_split": 0.99}, {}, r"validation|split|nothing"),
    "conversations without an answer": ([chat(USER), chat(USER)], {}, {}, r"2 of 2|answer"),
    "conversations beside documents": ([chat(USER, SAY), {"text": "x"}], {}, {}, r"."),
    "a range of lengths that is empty": ([row(1)], {"filters": {"min_length": 9, "max_length": 3}}, {}, r"min_length|max_length|no row of 1 is left"),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "dataset", "config", "answers", "said"), READ.values(), ids=READ.keys())
def test_trained_in_full_or_named(
    tmp_path: Path, rows: list[Any], dataset: dict[str, Any], config: dict[str, Any], answers: list[str], said: str
) -> None:
    files = {"data/train.jsonl": lines(*rows)}
    outcome = prepare(tmp_path, files, {"path": "data/train.jsonl", **dataset}, **config)
    assert outcome.refused == ""
    assert outcome.answers == answers
    assert re.search(said, outcome.said)


@pytest.mark.parametrize(("rows", "dataset", "config", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_reason(
    tmp_path: Path, rows: list[Any], dataset: dict[str, Any], config: dict[str, Any], why: str
) -> None:
    files = {"data/train.jsonl": lines(*rows)}
    outcome = prepare(tmp_path, files, {"path": "data/train.jsonl", **dataset}, **config)
    assert re.search(why, outcome.refused), outcome
