"""Rows that stand for another task are refused by what they are, with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import choose_columns
from expert_cli.data.conversation import BadRow
from expert_cli.data.rows import Row, to_row
from expert_cli.errors import InputError

SAID = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Paris."}]


def read(fields: dict[str, Any], **mapping: str) -> Row:
    named = ColumnMapping(**mapping)
    return to_row(fields, choose_columns(list(fields), named, "rows"), named, "rows:1")


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({"prompt": "?", "chosen": "a", "rejected": "b"}, "preferences"),
        ({"Chosen": SAID, "Rejected": SAID}, "preferences"),
        ({"prompt": "?", "completion": "a", "label": True}, "judged right or wrong"),
        ({"text": "I like it", "label": 1}, "classification"),
        ({"input_ids": [1], "attention_mask": [1]}, "tokens"),
        ({"contents": [{"role": "user", "parts": [{"text": "?"}]}]}, "Gemini"),
    ],
)
def test_columns_of_another_task_are_refused_by_name(fields: dict[str, Any], task: str) -> None:
    with pytest.raises(InputError, match=f"rows of .*{task}"):
        read(fields)


def test_what_the_manifest_names_is_read() -> None:
    preferred = read({"prompt": "?", "chosen": "a", "rejected": "b"}, instruction="prompt", response="chosen")
    assert preferred.answer == "a"
    assert read({"text": "I like it", "label": "good"}, instruction="text", response="label").answer == "good"
    assert read({"text": "I like it", "label": 1}, text="text").text == "I like it"


@pytest.mark.parametrize("name", ["image", "images", "Audio", "video"])
def test_a_row_with_a_picture_or_a_sound_is_bad_and_one_without_is_read(name: str) -> None:
    with pytest.raises(BadRow, match=f'"{name}" is there, but text alone is trained'):
        read({"messages": SAID, name: "boat.png"})
    for nothing in (None, "", [], {}):
        assert read({"messages": SAID, name: nothing}).answer == "Paris."


INVISIBLE = ("", " \n", "\u200b", "\ufeff\u200d ")


@pytest.mark.parametrize("nothing", INVISIBLE)
def test_an_answer_that_shows_nothing_is_none(nothing: str) -> None:
    empty = {"role": "assistant", "content": nothing}
    with pytest.raises(BadRow, match="an earlier assistant turn is empty"):
        read({"messages": [SAID[0], empty, *SAID]})
    with pytest.raises(BadRow, match="the last assistant turn is empty"):
        read({"messages": [SAID[0], empty]})
    with pytest.raises(BadRow, match='"output" is empty'):
        read({"instruction": "?", "output": nothing})
    assert read({"messages": [SAID[0], {**empty, "weight": 0}, *SAID]}).trained == [None, False, None, None]


@pytest.mark.parametrize("said", ["\u200bé", "👍", "．"])
def test_an_answer_that_shows_something_is_one(said: str) -> None:
    assert read({"instruction": "?", "output": said}).answer == said
