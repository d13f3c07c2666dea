"""The forms in which whole texts mark the turns of a conversation, one entry each.

They are the forms of published chat templates. An answer begins after the assistant's marker and ends with the token that
generation stops at, or before the next role's marker:

    <|start_of_role|>user<|end_of_role|>How many?<|end_of_text|>
    <|start_of_role|>assistant<|end_of_role|> | Four.<|end_of_text|>
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from expert_cli.data.templates.builtin import STYLES

TURN_ENDS = frozenset(
    (
        *(style.end for style in STYLES.values() if style.end),
        *("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|EOT|>", "<EOS_TOKEN>"),
        *("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|return|>", "<|call|>", "<turn|>"),
        *("<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "<end_of_utterance>", "<eoa>"),
    )
)
"""Tokens that end a turn wherever they are control tokens."""


@dataclass(frozen=True)
class Form:
    """How texts of one form mark turns.

    hint: a text of which there is one in each. assistant: what answers follow. role: what ends an answer that no token
    ends. user: what tells a text of the form that has no answer, "" = nothing does. control: what must be single control
    ids where it occurs; () = the markers are words. ends: tokens that end an answer in this form alone. goes_on: what
    after such a token still belongs to the answer.
    """

    hint: str
    assistant: re.Pattern[str]
    role: str
    user: str
    control: tuple[str, ...]
    ends: frozenset[str]
    goes_on: str


def _form(
    hint: str,
    assistant: str,
    role: str,
    *,
    user: str = "",
    control: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
    goes_on: str = "",
) -> Form:
    return Form(hint, re.compile(assistant, re.MULTILINE), role, user, control, frozenset(ends), goes_on)


_PIPES = r"<\|(?:system|developer|user|assistant|tool|tool_response|observation)\|>"
_HEADINGS = "### (?:System|Instruction|Input|Schema|User|Human|Response|Assistant):"
_OUTPUTS = "tool▁outputs▁begin|tool▁outputs▁end|tool▁output▁begin"
_TURN_TOKENS = ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>")

# In the order in which a text is held against them: words last, since any text may hold them.
FORMS = {
    "chatml": _form(
        "<|im_start|>",
        r"<\|im_start\|>assistant(?:<\|im_sep\|>)?\n*",  # Phi-4 has a token where the others have a line break
        r"<\|im_start\|>",
        user="<|im_start|>user",
        control=(*STYLES["chatml"].control, "<|im_sep|>"),
    ),
    "kimi": _form(
        "<|im_middle|>",
        r"<\|im_assistant\|>[^<]*<\|im_middle\|>",
        r"<\|im_(?:system|user|assistant)\|>",
        user="<|im_user|>",
        control=("<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
    ),
    # What an answer thinks, says and calls are messages of their own, all written by the model; "<|start|>assistant"
    # between them is so too.
    "harmony": _form(
        "<|start|>",
        r"<\|start\|>assistant",
        r"<\|start\|>(?!assistant)",
        user="<|start|>user",
        control=("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"),
        goes_on=r"<\|start\|>assistant",
    ),
    "granite": _form(
        "<|start_of_role|>",
        r"<\|start_of_role\|>assistant[^<]*<\|end_of_role\|>",
        r"<\|start_of_role\|>",
        user="<|start_of_role|>user",
        control=("<|start_of_role|>", "<|end_of_role|>"),
    ),
    "command-r": _form(
        "<|START_OF_TURN_TOKEN|>",
        r"<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|>",
        r"<\|START_OF_TURN_TOKEN\|>",
        user="<|USER_TOKEN|>",
        control=_TURN_TOKENS,
    ),
    "phi": _form("<|end|>", r"<\|assistant\|>\n*", _PIPES, user="<|user|>", control=STYLES["phi"].control),
    # The next role's marker is what the model ends an answer with; the line break before it writes an answer is its own.
    "glm": _form(
        "[gMASK]",
        r"<\|assistant\|>",
        r"<\|assistant\|>",
        user="<|user|>",
        control=("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        ends=("<|system|>", "<|user|>", "<|observation|>"),
    ),
    "zephyr": _form("<|assistant|>", r"<\|assistant\|>\n*", _PIPES),
    "llama": _form(
        "<|start_header_id|>",
        r"<\|start_header_id\|>assistant<\|end_header_id\|>\n*",
        r"<\|start_header_id\|>",
        user="<|start_header_id|>user",
        control=STYLES["llama"].control,
    ),
    "llama 4": _form(
        "<|header_start|>",
        r"<\|header_start\|>assistant<\|header_end\|>\n*",
        r"<\|header_start\|>",
        user="<|header_start|>user",
        control=("<|header_start|>", "<|header_end|>", "<|eot|>"),
    ),
    "gemma": _form(
        "<start_of_turn>",
        r"<start_of_turn>model\n*",
        r"<start_of_turn>",
        user="<start_of_turn>user",
        control=STYLES["gemma"].control,
    ),
    "gemma 4": _form(
        "<|turn>",
        r"<\|turn>model\n*|<tool_response\|>(?!<\|tool_response>)",
        r"<\|turn>",
        user="<|turn>user",
        control=("<|turn>", "<turn|>", "<|tool_response>", "<tool_response|>"),
        ends=("<|tool_response>",),  # which a call ends with, in the middle of the turn
    ),
    "deepseek": _form(
        "<｜",
        r"<｜(?:Assistant|tool▁outputs▁end|tool▁output▁end)｜>\n*",
        rf"<｜(?:User|Assistant|{_OUTPUTS})｜>",
        user="<｜User｜>",
        control=STYLES["deepseek"].control,
    ),
    "internlm": _form("<|Bot|>:", r"<\|Bot\|>:", r"<\|(?:System|User|Bot)\|>:", control=("<eoh>", "<eoa>")),
    "openchat": _form(
        "GPT4 Correct Assistant:",
        "GPT4 Correct Assistant:",
        "GPT4 Correct (?:System|User|Assistant):",
        control=("<|end_of_turn|>",),
    ),
    "mistral": _form(
        "[/INST]",
        r"\[/(?:INST|TOOL_RESULTS)\]\n*",
        r"\[(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]",
    ),
    "alpaca": _form("### Response:", r"^### Response:[ \t]*\n?", f"^{_HEADINGS}"),
    "guanaco": _form("### Assistant:", r"### Assistant:\n?", _HEADINGS),
    "vicuna": _form("USER:", r"(?<![^\s>])ASSISTANT:", r"(?<![^\s>])(?:USER|ASSISTANT):"),
    "user and assistant": _form("User:", r"^Assistant:", r"^(?:System|User|Assistant):"),
    "human and assistant": _form("Human:", r"^Assistant:", r"^(?:Human|Assistant):"),
}

MARKERS = frozenset(token for form in FORMS.values() for token in form.control)
"""Control tokens, though some tokenizers (DeepSeek V3, Command-R) do not call them special."""
LATER_MARKERS = MARKERS.difference(*(style.control for style in STYLES.values()))
"""Those that the first masking rule of pairs took for control tokens only where a tokenizer calls them special."""
