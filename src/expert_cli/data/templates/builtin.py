"""The named prompt templates."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from expert_cli.data.templates.chat_template import ChatTemplate, literal


@dataclass(frozen=True)
class BuiltinTemplate:
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

    def chat_template(self, eos_token: str) -> ChatTemplate:
        """Return it as a tokenizer's chat template. A conversation that ends with an answer ends with its end token."""
        system = (
            f"{{{{- {literal(self.system[0])} + message['content'] + {literal(self.system[1])} }}}}"
            if self.system
            else "{%- set ns.pending = message['content'] + '\\n\\n' %}"
        )
        end = literal(self.end or eos_token)
        user = [literal(text) for text in self.user]
        lines = (
            "{%- set ns = namespace(pending='') %}",
            "{%- for message in messages %}",
            "{%- if message['role'] == 'assistant' %}",
            f"{{{{- {literal(self.assistant + self.gap)} + message['content'] + {end} }}}}",
            f"{{{{- '' if loop.last else {literal(self.between)} }}}}",
            "{%- elif message['role'] == 'user' %}",
            f"{{{{- {user[0]} + ns.pending + message['content'] + {user[1]} }}}}",
            "{%- set ns.pending = '' %}",
            "{%- elif message['role'] == 'system' %}",
            system,
            "{%- else %}",
            """{{- raise_exception("the role '" + message['role'] + "' is not system, user or assistant") }}""",
            "{%- endif %}",
            "{%- endfor %}",
            f"{{{{- {literal(self.assistant)} if add_generation_prompt else '' }}}}",
        )
        return ChatTemplate("\n".join(lines))


ALPACA = BuiltinTemplate(
    system=("", "\n\n"), user=("### Instruction:\n", "\n\n"), assistant="### Response:\n", between="\n\n"
)
_CHATML = BuiltinTemplate(
    system=("<|im_start|>system\n", "<|im_end|>\n"),
    user=("<|im_start|>user\n", "<|im_end|>\n"),
    assistant="<|im_start|>assistant\n",
    end="<|im_end|>",
    between="\n",
    control=("<|im_start|>", "<|im_end|>"),
)

STYLES = MappingProxyType(
    {
        "chatml": _CHATML,
        "qwen3": _CHATML,
        "phi": BuiltinTemplate(
            system=("<|system|>\n", "<|end|>\n"),
            user=("<|user|>\n", "<|end|>\n"),
            assistant="<|assistant|>\n",
            end="<|end|>",
            between="\n",
            control=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        ),
        "llama": BuiltinTemplate(
            system=("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
            user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
            assistant="<|start_header_id|>assistant<|end_header_id|>\n\n",
            end="<|eot_id|>",
            control=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        ),
        "gemma": BuiltinTemplate(
            user=("<start_of_turn>user\n", "<end_of_turn>\n"),
            assistant="<start_of_turn>model\n",
            end="<end_of_turn>",
            between="\n",
            control=("<start_of_turn>", "<end_of_turn>"),
        ),
        "deepseek": BuiltinTemplate(
            system=("", ""),
            user=("<｜User｜>", ""),
            assistant="<｜Assistant｜>",
            end="<｜end▁of▁sentence｜>",
            control=("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ),
        # [INST] is a control token since the third Mistral tokenizer and plain text before: both work.
        "mistral": BuiltinTemplate(user=("[INST] ", ""), assistant="[/INST]", gap=" "),
        "alpaca": ALPACA,
    }
)
