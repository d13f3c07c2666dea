"""Where the answers of whole texts stand, as published chat templates write them."""

from __future__ import annotations

import pytest

from expert_cli.data.templates.mask import find_answers

CHATML = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
TEXTS = {
    "Phi-4": (
        "chatml",
        "<|im_start|>user<|im_sep|>q<|im_end|><|im_start|>assistant<|im_sep|>⟦a<|im_end|>⟧"
        "<|im_start|>user<|im_sep|>r<|im_end|><|im_start|>assistant<|im_sep|>⟦b<|im_end|>⟧",
    ),
    "control tokens in an answer": ("chatml", f"{CHATML}⟦<think>\nr\n</think>\n\na<|fim_middle|>b<|im_end|>⟧\n"),
    "nobody answers": ("chatml", "<|im_start|>user\nq<|im_end|>\n"),
    "nothing is answered": ("chatml", f"{CHATML}\n"),
    "Phi-4-mini": ("phi", "<|user|>q<|end|><|assistant|>⟦a<|end|>⟧<|tool_response|>4<|end|><|assistant|>⟦b<|end|>⟧"),
    "Mistral, results of tools": (
        "mistral",
        "[INST] q[/INST]⟦ a</s>⟧[AVAILABLE_TOOLS] [{}][/AVAILABLE_TOOLS][INST] r[/INST]⟦[TOOL_CALLS] [{}, {}]</s>⟧"
        "[TOOL_RESULTS] 4[/TOOL_RESULTS][TOOL_RESULTS] 5[/TOOL_RESULTS]⟦ nine</s>⟧[INST] t[/INST]⟦ b</s>⟧",
    ),
    "Alpaca, another heading": ("alpaca", "### Instruction:\nq\n\n### Response:\n⟦a\n### Steps:\nb⟧"),
    "Orca Mini": (
        "alpaca",
        "### System:\ns\n\n### User:\nq\n\n### Response:\n⟦a⟧\n\n### User:\nr\n\n### Response:\n⟦b⟧",
    ),
    "a tale": ("plain", "He said: Assistant: no."),
}


@pytest.mark.parametrize(("form", "marked"), TEXTS.values(), ids=TEXTS.keys())
def test_exactly_the_answers_are_found(form: str, marked: str) -> None:
    text = marked.replace("⟦", "").replace("⟧", "")
    found, spans = find_answers(text, {"</s>"})
    for start, stop in reversed(spans):
        text = f"{text[:start]}⟦{text[start:stop]}⟧{text[stop:]}"
    assert (found, text) == (form, marked)
