"""Every form in which files have rows: what becomes of it is what transformers makes of the conversation that it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.forms import Form
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.chat_templates import of_trl
from tests.machines import CPU
from tests.reading import read_training_rows
from tests.row_forms import FORMS, mapping_of
from tests.tiny import template_for, tiny_tokenizer

HF = tiny_tokenizer()
END = "<|im_end|>"
QWEN = of_trl("qwen3")
DEVELOPED = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
DEVELOPED += "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
"""Shows a developer's turn, which Qwen's leaves out."""
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}],
}
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>'


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


ASKED, ANSWER, COUNT = turn("user", "How many?"), turn("assistant", "Four."), turn("system", "Count.")
MEANT: dict[str, tuple[list[dict[str, Any]], Any, list[str]]] = {
    "messages": ([COUNT, ASKED, ANSWER], None, ["Four."]),
    "messages of a developer": ([turn("developer", "Count."), ASKED, ANSWER], None, ["Four."]),
    "messages as JSON text": ([ASKED, ANSWER], None, ["Four."]),
    "messages of text parts": ([ASKED, ANSWER], None, ["Four."]),
    "OpenAI": (
        [ASKED, turn("assistant", "Three."), turn("user", "Sure?"), CALL, turn("tool", "4"), ANSWER],
        TOOLS,
        [CALLED, "Four."],
    ),
    "OpenAI, functions": (
        [ASKED, CALL, turn("tool", "4"), ANSWER],
        [{"name": "add", "parameters": {"type": "object"}}],
        [CALLED, "Four."],
    ),
    "ShareGPT": ([COUNT, ASKED, ANSWER], None, ["Four."]),
    "ShareGPT, calls": (
        [COUNT, ASKED, CALL, turn("tool", "4"), ANSWER],
        [{"name": "add", "parameters": {"type": "object"}}],
        [CALLED, "Four."],
    ),
    "own names": ([ASKED, ANSWER], None, ["Four."]),
    "question and answer": ([turn("user", "How many?\n\n4 boats"), ANSWER], None, ["Four."]),
    "prompt and completion": ([ASKED, ANSWER], None, ["Four."]),
    "prompt and completion of messages": ([ASKED, ANSWER], None, ["Four."]),
    "Alpaca with system and history": (
        [
            COUNT,
            turn("user", "Hello!"),
            turn("assistant", "Hello."),
            turn("user", "How many?\n\n4 boats"),
            ANSWER,
        ],
        None,
        ["Hello.", "Four."],
    ),
    "prompt and completion of messages, with tools": ([ASKED, CALL], TOOLS, [CALLED]),
}
"""The conversation that the example of a form means, its tools, and what is trained."""
PLAIN = {"document", "axolotl, input_output"}


def test_every_form_is_held_against_what_it_means() -> None:
    assert {*MEANT, *PLAIN} == set(FORMS)


@pytest.mark.parametrize("name", MEANT)
def test_a_form_is_read_as_the_conversation_that_it_means(name: str, tmp_path: Path) -> None:
    _, form = FORMS[name]
    turns, tools, trained = MEANT[name]
    template = QWEN if turns[0]["role"] != "developer" else DEVELOPED
    rows = rows_of(form, tmp_path)
    made = template_for(HF.backend_tokenizer, "", own=ChatTemplate(template, rendered), eos_token=END)
    (document,) = made.documents(rows)
    whole = HF.apply_chat_template(turns, tools=tools, chat_template=template, tokenize=False, enable_thinking=False)
    assert "".join(piece.text for piece in document) + "\n" == whole
    answers = "".join(piece.text for piece in document if piece.trained)
    assert answers.split(END)[:-1] == trained


def rows_of(form: Form, folder: Path) -> Rows:
    """Read a form as a run does whose manifest has its field_mapping."""
    (folder / "rows.jsonl").write_text(json.dumps(form.row), encoding="utf-8")
    manifest = manifests.small()
    manifest["training"]["dataset"] = {"path": "rows.jsonl", "field_mapping": dict(form.mapping) or None}
    run = make_plan(manifests.write(folder, manifest), CPU, Overrides()).run
    assert run.data.mapping == mapping_of(form)
    assert locate_data(run.data, NullReporter()).train
    return read_training_rows(run.data, NullReporter()).train


def rendered(jinja: str, turns: list[dict[str, Any]], generate: bool, *, tools: Any = None, **more: Any) -> str:
    return str(
        HF.apply_chat_template(
            turns, tools=tools or None, chat_template=jinja, tokenize=False, add_generation_prompt=generate, **more
        )
    )
