"""The named prompt templates, and how a whole document written in one of them is read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Style:
    """One written form of a conversation; a pair is the text before and after a turn's content.

    system None: the system text opens the first user turn. end "": the tokenizer's own end token closes an answer.
    gap: what stands between the generation prompt and an answer. control: what must be single control ids.
    """

    user: tuple[str, str]
    assistant: str
    control: tuple[str, ...] = ()
    system: tuple[str, str] | None = None
    gap: str = ""
    end: str = ""
    between: str = ""

    def render(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool, eos_token: str) -> str:
        """Write a conversation down, as a tokenizer's chat template does."""
        parts: list[str] = []
        pending = ""
        for message in messages:
            role, content = message["role"], message["content"]
            if role == "assistant":
                parts.append(f"{self.assistant}{self.gap}{content}{self.end or eos_token}{self.between}")
            elif role == "user":
                parts.append(f"{self.user[0]}{pending}{content}{self.user[1]}")
                pending = ""
            elif role == "system" and self.system:
                parts.append(f"{self.system[0]}{content}{self.system[1]}")
            elif role == "system":
                pending = f"{content}\n\n"
            else:
                raise ValueError(f"the role {role!r} is not system, user or assistant")
        return "".join(parts) + (self.assistant if add_generation_prompt else "")

    def jinja(self, eos_token: str, bos_token: str = "") -> str:
        """Return what renders the same in other programs: a chat template in Jinja, of what llama.cpp knows of it too."""
        answer = (f"{self.assistant}{self.gap}", f"{self.end or eos_token}{self.between}")
        system = (
            "{% set ns.pending = content + '\\n\\n' %}" if self.system is None else _around(*self.system, "content")
        )
        return "".join(
            (
                f"{{{{ {_quoted(bos_token)} }}}}" if bos_token else "",
                "{% set ns = namespace(pending='') %}{% for message in messages %}{% set content = message['content'] %}",
                f"{{% if message['role'] == 'assistant' %}}{_around(*answer, 'content')}",
                f"{{% elif message['role'] == 'user' %}}{_around(*self.user, 'ns.pending + content')}",
                "{% set ns.pending = '' %}",
                f"{{% elif message['role'] == 'system' %}}{system}",
                "{% else %}{{ raise_exception('the role ' + message['role'] + ' is not system, user or assistant') }}",
                "{% endif %}{% endfor %}",
                f"{{% if add_generation_prompt %}}{{{{ {_quoted(self.assistant)} }}}}{{% endif %}}",
            )
        )


def _around(before: str, after: str, content: str) -> str:
    """Return the Jinja that writes a content between two texts."""
    return f"{{{{ {_quoted(before)} + {content} + {_quoted(after)} }}}}"


def _quoted(text: str) -> str:
    """Return a text as Jinja spells it: line feeds at the end of a block would be eaten."""
    return json.dumps(text, ensure_ascii=False)


ALPACA = Style(system=("", "\n\n"), user=("### Instruction:\n", "\n\n"), assistant="### Response:\n", between="\n\n")
_CHATML = Style(
    system=("<|im_start|>system\n", "<|im_end|>\n"),
    user=("<|im_start|>user\n", "<|im_end|>\n"),
    assistant="<|im_start|>assistant\n",
    end="<|im_end|>",
    between="\n",
    control=("<|im_start|>", "<|im_end|>"),
)

# In the order in which a document is held against them: headings last, since any text may hold them.
STYLES = MappingProxyType(
    {
        "chatml": _CHATML,
        "qwen3": _CHATML,
        "phi": Style(
            system=("<|system|>\n", "<|end|>\n"),
            user=("<|user|>\n", "<|end|>\n"),
            assistant="<|assistant|>\n",
            end="<|end|>",
            between="\n",
            control=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        ),
        "llama": Style(
            system=("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
            user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
            assistant="<|start_header_id|>assistant<|end_header_id|>\n\n",
            end="<|eot_id|>",
            control=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        ),
        "gemma": Style(
            user=("<start_of_turn>user\n", "<end_of_turn>\n"),
            assistant="<start_of_turn>model\n",
            end="<end_of_turn>",
            between="\n",
            control=("<start_of_turn>", "<end_of_turn>"),
        ),
        "deepseek": Style(
            system=("", ""),
            user=("<｜User｜>", ""),
            assistant="<｜Assistant｜>",
            end="<｜end▁of▁sentence｜>",
            control=("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ),
        # [INST] is a control token since the third Mistral tokenizer and plain text before: both work.
        "mistral": Style(user=("[INST] ", ""), assistant="[/INST]", gap=" "),
        "alpaca": ALPACA,
    }
)

# Some tokenizers (DeepSeek V3) do not call these special, though they are control tokens.
MARKERS = frozenset(token for style in STYLES.values() for token in style.control)


@dataclass(frozen=True)
class Reading:
    """A document as read: the name of its form ("plain" = none known) and its assistant turns, end tokens included."""

    form: str
    end: str
    turns: tuple[tuple[int, int], ...]


def read_document(text: str) -> Reading:
    """Find the assistant turns of a document that is written in a known template."""
    for name, (marker, pattern, end) in _FORMS.items():
        if marker in text:
            turns = tuple(match.span(1) for match in pattern.finditer(text))
            if turns:
                return Reading(name, end, turns)
    return Reading("plain", "", ())


def _form(style: Style) -> tuple[str, re.Pattern[str], str]:
    marker = style.assistant.rstrip()
    if style is ALPACA:
        pattern = rf"^{re.escape(marker)}[ \t]*\n?(.*?)(?=\n### Instruction:|\Z)"
    else:
        end = style.end or "</s>"
        pattern = rf"{re.escape(marker)}{style.gap}\n*(.*?(?:{re.escape(end)}|\Z))"
    return marker, re.compile(pattern, re.DOTALL | re.MULTILINE), style.end


_FORMS = {name: _form(style) for name, style in STYLES.items() if name != "qwen3"}
