"""The forms in which whole texts mark the turns of a conversation, one entry each.

They are the forms of published chat templates. An answer begins after the assistant's marker and ends with the token that
generation stops at, or before the next role's marker:

    <|start_of_role|>user<|end_of_role|>How many?<|end_of_text|>
    <|start_of_role|>assistant<|end_of_role|> | Four.<|end_of_text|>
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

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
    ends, "" = the hint. user: what tells a text of the form that has no answer, "" = nothing does. control: what must be
    single control ids where it occurs; () = the markers are words. ends: tokens that end an answer in this form alone.
    goes_on: what after such a token still belongs to the answer.
    """

    hint: str
    assistant: str
    role: str = ""
    user: str = ""
    control: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    goes_on: str = ""

    @cached_property
    def answers(self) -> re.Pattern[str]:
        """Finds what answers follow."""
        return re.compile(self.assistant, re.MULTILINE)


_PIPES = r"<\|(?:system|developer|user|assistant|tool|tool_response|observation)\|>"
_HEADINGS = "### (?:System|Instruction|Input|Schema|User|Human|Response|Assistant):"
_OUTPUTS = "tool▁outputs▁begin|tool▁outputs▁end|tool▁output▁begin"
_TURN_TOKENS = ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>")

# In the order in which a text is held against them: words last, since any text may hold them.
FORMS = {
    "chatml": Form(
        "<|im_start|>",
        r"<\|im_start\|>assistant(?:<\|im_sep\|>)?\n*",  # Phi-4 has a token where the others have a line break
        user="<|im_start|>user",
        control=(*STYLES["chatml"].control, "<|im_sep|>"),
    ),
    "kimi": Form(
        "<|im_middle|>",
        r"<\|im_assistant\|>[^<]*<\|im_middle\|>",
        r"<\|im_(?:system|user|assistant)\|>",
        user="<|im_user|>",
        control=("<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
    ),
    # What an answer thinks, says and calls are messages of their own, all written by the model; "<|start|>assistant"
    # between them is so too.
    "harmony": Form(
        "<|start|>",
        r"<\|start\|>assistant",
        r"<\|start\|>(?!assistant)",
        user="<|start|>user",
        control=("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"),
        goes_on=r"<\|start\|>assistant",
    ),
    "granite": Form(
        "<|start_of_role|>",
        r"<\|start_of_role\|>assistant[^<]*<\|end_of_role\|>",
        user="<|start_of_role|>user",
        control=("<|start_of_role|>", "<|end_of_role|>"),
    ),
    "command-r": Form(
        "<|START_OF_TURN_TOKEN|>",
        r"<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|>",
        user="<|USER_TOKEN|>",
        control=_TURN_TOKENS,
    ),
    "phi": Form("<|end|>", r"<\|assistant\|>\n*", _PIPES, user="<|user|>", control=STYLES["phi"].control),
    # The next role's marker is what the model ends an answer with; the line break before it writes an answer is its own.
    "glm": Form(
        "[gMASK]",
        r"<\|assistant\|>",
        r"<\|assistant\|>",
        user="<|user|>",
        control=("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        ends=("<|system|>", "<|user|>", "<|observation|>"),
    ),
    "zephyr": Form("<|assistant|>", r"<\|assistant\|>\n*", _PIPES),
    "llama": Form(
        "<|start_header_id|>",
        r"<\|start_header_id\|>assistant<\|end_header_id\|>\n*",
        user="<|start_header_id|>user",
        control=STYLES["llama"].control,
    ),
    "llama 4": Form(
        "<|header_start|>",
        r"<\|header_start\|>assistant<\|header_end\|>\n*",
        user="<|header_start|>user",
        control=("<|header_start|>", "<|header_end|>", "<|eot|>"),
    ),
    "gemma": Form(
        "<start_of_turn>",
        r"<start_of_turn>model\n*",
        user="<start_of_turn>user",
        control=STYLES["gemma"].control,
    ),
    "gemma 4": Form(
        "<|turn>",
        r"<\|turn>model\n*|<tool_response\|>(?!<\|tool_response>)",
        user="<|turn>user",
        control=("<|turn>", "<turn|>", "<|tool_response>", "<tool_response|>"),
        ends=("<|tool_response>",),  # which a call ends with, in the middle of the turn
    ),
    "deepseek": Form(
        "<｜",
        r"<｜(?:Assistant|tool▁outputs▁end|tool▁output▁end)｜>\n*",
        rf"<｜(?:User|Assistant|{_OUTPUTS})｜>",
        user="<｜User｜>",
        control=STYLES["deepseek"].control,
    ),
    "internlm": Form("<|Bot|>:", r"<\|Bot\|>:", r"<\|(?:System|User|Bot)\|>:", control=("<eoh>", "<eoa>")),
    "openchat": Form(
        "GPT4 Correct Assistant:",
        "GPT4 Correct Assistant:",
        "GPT4 Correct (?:System|User|Assistant):",
        control=("<|end_of_turn|>",),
    ),
    "mistral": Form(
        "[/INST]",
        r"\[/(?:INST|TOOL_RESULTS)\]\n*",
        r"\[(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]",
    ),
    "alpaca": Form("### Response:", r"^### Response:[ \t]*\n?", f"^{_HEADINGS}"),
    "guanaco": Form("### Assistant:", r"### Assistant:\n?", _HEADINGS),
    "vicuna": Form("USER:", r"(?<![^\s>])ASSISTANT:", r"(?<![^\s>])(?:USER|ASSISTANT):"),
    "user and assistant": Form("User:", r"^Assistant:", r"^(?:System|User|Assistant):"),
    "human and assistant": Form("Human:", r"^Assistant:", r"^(?:Human|Assistant):"),
}

MARKERS = frozenset(token for form in FORMS.values() for token in form.control)
"""Control tokens, though some tokenizers (DeepSeek V3, Command-R) do not call them special."""


def any_of(tokens: Iterable[str]) -> str:
    """Return a regular expression that finds any of some tokens, the longest of several."""
    return "|".join(map(re.escape, sorted(tokens, key=lambda token: (-len(token), token))))
