"""Conversations as hypothesis draws them, and the chat templates of model families that they go through."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.tiny import CHATML

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OLMO2 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<|system|>\n' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' + message['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\n' }}{% endif %}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)
"""SmolLM2's and OLMo 2's, which no package brings as a file."""
_CONTROL = re.compile(
    r"<\|[a-z_0-9]+\|>|<｜[^｜'\"]+｜>|\[/?[A-Z]+(?:_[A-Z]+)*\]|<(?:start|end)_of_turn>|</?s>|<bos>|<eos>|\[gMASK\]|<sop>"
)
"""How the control tokens of these families are spelled."""


@dataclass(frozen=True)
class Family:
    """A chat template and the tokens that it counts on.

    source: "trl:NAME" or "llama.cpp:NAME", a file of that package, else the text itself. spelled: whether it takes the
    arguments of calls as JSON text alone, which is what OpenAI's rows have. next_role: the markers of roles at which its model
    stops, as no token of its own ends an answer. headed: whether TRL's `{% generation %}` holds the marker of the assistant.
    turn_end: the token that ends a turn, where the template puts `eos` behind the whole conversation.
    """

    name: str
    source: str
    eos: str
    bos: str = ""
    spelled: bool = False
    next_role: tuple[str, ...] = ()
    headed: bool = False
    turn_end: str = ""

    def jinja(self, llama_cpp: Path | None = None) -> str:
        """Return the template; "" where its package is not here. llama_cpp: the source archive of llama-cpp-python."""
        where, _, name = self.source.partition(":")
        if where == "trl":
            return _of_trl(name)
        if where == "llama.cpp":
            return _of_llama_cpp(llama_cpp, name) if llama_cpp else ""
        return self.source

    def marked(self) -> str:
        """Return the same with `{% generation %}` around answers, as TRL has it; "" where it has none."""
        where, _, name = self.source.partition(":")
        return _of_trl(f"{name}_training") if where == "trl" else ""


DEEPSEEK = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>")
FAMILIES = (
    Family("Qwen2.5", "trl:qwen2_5", "<|im_end|>"),
    Family("Qwen3", "trl:qwen3", "<|im_end|>"),
    Family("Llama 3.1", "trl:llama3_1", "<|eot_id|>", "<|begin_of_text|>"),
    Family("Llama 3.2", "trl:llama3_2", "<|eot_id|>", "<|begin_of_text|>"),
    Family("Llama 3", "trl:llama3", "<|eot_id|>", "<|begin_of_text|>"),
    Family("Mistral Nemo", "llama.cpp:mistralai-Mistral-Nemo-Instruct-2407", "</s>", "<s>"),
    Family("Mistral Small 3.2", "llama.cpp:Mistral-Small-3.2-24B-Instruct-2506", "</s>", "<s>"),
    Family("Gemma 2", "trl:gemma", "<end_of_turn>", "<bos>"),
    Family("Gemma 3", "trl:gemma3", "<end_of_turn>", "<bos>"),
    Family("Phi 3.5", "trl:phi3_5", "<|endoftext|>", turn_end="<|end|>"),
    Family("SmolLM2", SMOLLM2, "<|im_end|>"),
    Family("SmolLM3", "llama.cpp:HuggingFaceTB-SmolLM3-3B", "<|im_end|>"),
    Family("DeepSeek V3", "trl:deepseekv3", *DEEPSEEK, spelled=True, headed=True),
    Family("DeepSeek R1 distilled", "trl:deepseek_r1_distill", *DEEPSEEK, spelled=True),
    Family("GLM 4.5", "trl:glm4moe", "<|endoftext|>", next_role=("<|user|>", "<|observation|>")),
    Family("Granite 3.3", "llama.cpp:ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>"),
    Family("Granite 4.0", "llama.cpp:ibm-granite-granite-4.0", "<|end_of_text|>"),
    Family("OLMo 2", OLMO2, "<|endoftext|>", "<|endoftext|>"),
    Family("ChatML", CHATML, "<|im_end|>"),
    Family("gpt-oss", "trl:gptoss", "<|return|>", headed=True),
)


def control_tokens(family: Family, jinja: str) -> list[str]:
    """Return the control tokens of a template, in the order in which they stand there."""
    return list(dict.fromkeys([family.eos, *([family.bos] if family.bos else []), *_CONTROL.findall(jinja)]))


def _of_trl(name: str) -> str:
    found = find_spec("trl")
    path = Path(found.origin).with_name("chat_templates") / f"{name}.jinja" if found and found.origin else None
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _of_llama_cpp(archive: Path, name: str) -> str:
    with tarfile.open(archive) as files:
        member = next(at for at in files if at.name.endswith(f"/models/templates/{name}.jinja"))
        text = files.extractfile(member)
        return text.read().decode() if text else ""


ODD = (
    "\n", "\n\n", " ", "  ", "{{", "{% if x %}", '"', "'", "\\", "é", "漢字", "🙂", "<b>", "&amp;", "system", "assistant\n",
    "<|im_end|>", "</s>", "<|eot_id|>",
)  # fmt: skip
WORDS = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789.,:?!", min_size=1, max_size=9)
TEXTS = st.lists(st.one_of(WORDS, WORDS, st.sampled_from(ODD)), min_size=1, max_size=5).map("".join)
SAID = TEXTS.filter(str.strip)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=3, max_size=8).filter(lambda name: name.strip("_"))
VALUES = st.recursive(
    st.one_of(SAID, st.integers(-9, 99), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=3,
)
GIVEN = VALUES.filter(lambda value: value is not None)
"""Values of arguments: a null that no tool speaks of is left out when a row is read."""


@st.composite
def conversations(draw: st.DrawFn, *, spelled: bool) -> dict[str, Any]:
    """Return a row: messages with their weights, and tools where it has some. spelled: arguments of calls are JSON text."""
    names = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True)) if draw(st.integers(0, 2)) == 0 else []
    turns: list[dict[str, Any]] = []
    if draw(st.integers(0, 2)) == 0:
        turns.append({"role": "system", "content": draw(SAID)})
    thinks = draw(st.integers(0, 4)) == 0
    for _ in range(draw(st.integers(1, 3))):
        turns.append({"role": "user", "content": draw(SAID)})
        for _ in range(draw(st.integers(0, 2)) if names else 0):
            turns += draw(_called(names, thinks=thinks, spelled=spelled))
        turns.append(_answer(draw, draw(SAID), thinks=thinks))
    if names and turns[-2]["role"] == "tool" and draw(st.booleans()):
        turns = turns[:-2]  # ends with a call
        while turns[-1]["role"] == "tool":
            turns.pop()
    row: dict[str, Any] = {"messages": turns}
    return row | ({"tools": [_tool(draw, name) for name in names]} if names else {})


def _answer(draw: st.DrawFn, content: str, *, thinks: bool, **more: Any) -> dict[str, Any]:
    turn = {"role": "assistant", "content": content, **more}
    if thinks and draw(st.booleans()):
        turn["reasoning_content"] = f"Reasoned: {draw(SAID)}"
    if draw(st.integers(0, 5)) == 0:
        turn["weight"] = draw(st.sampled_from((0, 1)))
    return turn


@st.composite
def _called(draw: st.DrawFn, names: list[str], *, thinks: bool, spelled: bool) -> list[dict[str, Any]]:
    """A call, or two at once, and what they return."""
    called: list[dict[str, Any]] = []
    for number, name in enumerate(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))):
        arguments = draw(st.dictionaries(NAMES, GIVEN, max_size=2))
        said = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if spelled else arguments}
        called.append({"id": f"abcdefg{number:02}", "type": "function", "function": said})
    results = [
        {"role": "tool", "content": draw(SAID), "tool_call_id": call["id"], "name": call["function"]["name"]}
        for call in called
    ]
    return [_answer(draw, "", thinks=thinks, tool_calls=called), *results]


def _tool(draw: st.DrawFn, name: str) -> dict[str, Any]:
    kinds = st.sampled_from(("string", "integer", "boolean"))
    properties: dict[str, Any] = draw(
        st.dictionaries(NAMES, st.fixed_dictionaries({"type": kinds, "description": SAID}), max_size=2)
    )
    parameters = {"type": "object", "properties": properties, "required": [*properties][:1]}
    return {"type": "function", "function": {"name": name, "description": draw(SAID), "parameters": parameters}}
