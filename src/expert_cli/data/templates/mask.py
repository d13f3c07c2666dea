r"""Finds the trained text of a row: helpers for `chat.py`, and the search for answers in whole texts.

    asked     <|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n
    answered  <|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\nFour.<|im_end|>\n
    pieces    ------------------------- not trained -------------------------|----trained----

The conversation is rendered up to the answer, then with it. The answer, with its end token, is the text that the second one
adds to the first. Each piece is encoded separately, so that the border is between the same ids as in generation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

Rendered = list[tuple[str, bool]]
"""Pieces of text, and whether each is trained."""
_HEADER = r"<\|start_header_id\|>"
PLAIN = "plain"
"""The form of a whole text without known markers, which is trained completely."""


class TextForm(NamedTuple):
    """Markers of whole texts. hint: occurs in all; answer: precedes an answer; role: begins a turn; end: end token, "": EOS."""

    hint: str
    answer: str
    role: str
    end: str = ""


TEXT_FORMS = {
    "chatml": TextForm("<|im_start|>", r"<\|im_start\|>assistant(?:\n|<\|im_sep\|>)?", r"<\|im_start\|>", "<|im_end|>"),
    "llama": TextForm("<|start_header_id|>", f"{_HEADER}assistant<\\|end_header_id\\|>\n*", _HEADER, "<|eot_id|>"),
    "gemma": TextForm("<start_of_turn>", r"<start_of_turn>model\n?", "<start_of_turn>", "<end_of_turn>"),
    "phi": TextForm("<|end|>", r"<\|assistant\|>\n?", r"<\|(?:system|user|assistant|tool)\|>", "<|end|>"),
    "mistral": TextForm(
        "[/INST]", r"\[/INST\]|\[/TOOL_RESULTS\](?!\s*\[TOOL_RESULTS\])", r"\[(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS)\]"
    ),
    "alpaca": TextForm(
        "### Response:", r"^### Response:[ \t]*\n?", "^### (?:System|User|Instruction|Input|Schema|Response):"
    ),
}
"""The forms in the order in which they are tried. Markers that are words come last, because any text may contain them."""


def border(asked: str, answered: str, control: re.Pattern[str]) -> int:
    """Return where a prompt ends in the text with its answer: after their common prefix, but not inside a control token."""
    if answered.startswith(asked):
        return len(asked)
    end = common(asked, answered)
    tokens = (token for text in (asked, answered) for token in control.finditer(text, max(0, end - 64)))
    return min((token.start() for token in tokens if token.start() < end < token.end()), default=end)


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def pieces_of(text: str, spans: Iterable[tuple[int, int, bool]], *, everything: bool) -> Rendered:
    """Cut a text at spans (start, stop, trained), up to the last one. everything: text between them is trained, too."""
    pieces: Rendered = []
    at = 0
    for start, stop, trained in spans:
        pieces += [(text[at:start], everything), (text[start:stop], trained)]
        at = stop
    return [piece for piece in pieces if piece[0]]


def find_answers(text: str, ends: Collection[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the form of a whole text and the spans of its answers, including the tokens that end them (`ends`)."""
    for name, form in TEXT_FORMS.items():
        if form.hint not in text or not re.search(form.role, text, re.MULTILINE):
            continue
        stops = re.compile(f"(?P<role>{form.role})|{any_of({form.end, *ends} - {''})}", re.MULTILINE)
        spans = []
        for marker in re.finditer(form.answer, text, re.MULTILINE):
            found = stops.search(text, marker.end())
            stop = len(text) if found is None else found.start() if found["role"] else found.end()
            spans.append((marker.end(), max(marker.end(), len(text[:stop].rstrip()))))
        return name, [(start, stop) for start, stop in spans if stop > start]
    return PLAIN, []


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression that matches any of the texts, the longest first; without texts, it never matches."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"
