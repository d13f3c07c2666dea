r"""Whole documents that are written in a template already: where their assistant turns are, and so what is trained.

    <|user|>\nHow many?</s>\n<|assistant|>\n | Four.</s> | \n<|user|>\nAnd boats?</s>\n<|assistant|>\n | Two.</s>

An answer runs from its marker to the next control token, which it keeps, or to the next role's marker, which it does not.
Only a control token that an answer begins with (Llama's <|python_tag|>, Mistral's [TOOL_CALLS]) does not end it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from expert_cli.data.segments import Document, Segment
from expert_cli.data.text_templates import STYLES, TURN_ENDS

PLAIN = "plain"
"""The form of a text without known markers: all of it is trained."""
FOREIGN = ", in another tokenizer's control tokens"
"""Ends the name of a form whose control tokens the tokenizer does not have: to the model they are words."""


@dataclass(frozen=True)
class _Form:
    """How documents of a form mark turns: a text of which there is one in each, the markers of the assistant and of any role.

    control: what must be single control ids where it occurs in a text; () = the markers are words.
    """

    hint: str
    assistant: re.Pattern[str]
    role: str
    control: tuple[str, ...] = ()


def _form(hint: str, assistant: str, role: str, control: tuple[str, ...] = ()) -> _Form:
    return _Form(hint, re.compile(assistant, re.MULTILINE), role, control)


_PIPES = r"<\|(?:system|user|assistant|tool)\|>"
_HEADERS = r"<\|start_header_id\|>"
# In the order in which a document is held against them: headings last, since any text may hold them.
_FORMS = {
    "chatml": _form("<|im_start|>", r"<\|im_start\|>assistant\n*", r"<\|im_start\|>", STYLES["chatml"].control),
    "phi": _form("<|end|>", r"<\|assistant\|>\n*", _PIPES, STYLES["phi"].control),
    "zephyr": _form("<|assistant|>", r"<\|assistant\|>\n*", _PIPES),
    "llama": _form(
        "<|start_header_id|>", rf"{_HEADERS}assistant<\|end_header_id\|>\n*", _HEADERS, STYLES["llama"].control
    ),
    "gemma": _form("<start_of_turn>", r"<start_of_turn>model\n*", r"<start_of_turn>", STYLES["gemma"].control),
    "deepseek": _form("<｜", r"<｜Assistant｜>\n*", r"<｜(?:User|Assistant)｜>", STYLES["deepseek"].control),
    "mistral": _form("[/INST]", r"\[/INST\]\n*", r"\[(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]"),
    "alpaca": _form("### Response:", r"^### Response:[ \t]*\n?", r"^### (?:Instruction|Response):"),
}


@dataclass(frozen=True)
class TextReader:
    """Turns whole documents into pieces; the tokens are the tokenizer's, `end_token` the one that ends an answer."""

    control_tokens: frozenset[str]
    end_token: str
    eos_token: str
    bos_token: str
    completion_only: bool

    def document(self, text: str, forms: dict[str, int]) -> Document:
        """Return the pieces of a document, its assistant turns trained, and count its form; all of a "plain" one is.

        One of a known form without an answer trains nothing.
        """
        form, turns = self.read(text)
        forms[form] = forms.get(form, 0) + 1
        everything = not self.completion_only
        if everything or form == PLAIN:
            turns = [(0, len(text))]
        pieces = [] if text.startswith(self.bos_token) else [Segment(self.bos_token, True, everything)]
        done = 0
        for start, stop in turns:
            if start > done:
                pieces.append(Segment(text[done:start], True, False))
            pieces.append(Segment(text[start:stop], True, True))
            done = stop
        if not turns:
            return (*pieces, Segment(text, True, False))
        bare = pieces[-1].text.rstrip()
        ended = bare.endswith(tuple(self._ends if everything or form == PLAIN else self.control_tokens))
        if ended or form != PLAIN:
            pieces[-1] = pieces[-1]._replace(text=bare)
        if not ended:
            pieces.append(Segment(self.end_token, True, True))
        return tuple(pieces)

    def read(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return the name of a document's form, "plain" without one, and where its assistant turns begin and end."""
        found = {name: form for name, form in _FORMS.items() if form.hint in text}
        for name, form in found.items():
            turns = list(self._turns(text, form, self._stops[name]))
            if turns:
                strange = TURN_ENDS - self.control_tokens
                foreign = any(token in text and token not in self.control_tokens for token in form.control) or any(
                    text[start:stop].rstrip().endswith(tuple(strange)) for start, stop in turns
                )
                return f"{name}{FOREIGN}" if foreign else name, [(start, stop) for start, stop in turns if stop > start]
        marked = [name for name, form in found.items() if form.control and self.control_tokens.issuperset(form.control)]
        return next((name for name in marked if STYLES[name].user[0].rstrip() in text), PLAIN), []

    def _turns(self, text: str, form: _Form, stops: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        for marker in form.assistant.finditer(text):
            start = marker.end()
            found = stops.search(text, start)
            while found and found.start() == start and not self._ends_turn(found):
                start = found.end()
                found = stops.search(text, start)
            if found is None:
                yield marker.end(), len(text.rstrip())
            elif found["role"]:
                yield marker.end(), max(marker.end(), len(text[: found.start()].rstrip()))
            else:
                yield marker.end(), found.end()

    def _ends_turn(self, found: re.Match[str]) -> bool:
        return bool(found["role"]) or found[0] in self._ends

    @cached_property
    def _ends(self) -> frozenset[str]:
        """The tokens that end a document or a turn, of those the tokenizer has."""
        return frozenset({self.eos_token, self.end_token} | TURN_ENDS) & self.control_tokens

    @cached_property
    def _stops(self) -> dict[str, re.Pattern[str]]:
        """What may end a turn of each form: a role's marker or a control token, be it another tokenizer's."""
        return {name: self._stop(form) for name, form in _FORMS.items()}

    def _stop(self, form: _Form) -> re.Pattern[str]:
        tokens = sorted({*self.control_tokens, *form.control}, key=lambda token: (-len(token), token))
        return re.compile(f"(?P<role>{form.role})|{'|'.join(map(re.escape, tokens))}", re.MULTILINE)


def foreign_texts(forms: Mapping[str, int]) -> int:
    """Return how many documents are written in control tokens that the tokenizer does not have."""
    return sum(count for form, count in forms.items() if form.endswith(FOREIGN))


def describe_forms(forms: Mapping[str, int]) -> str:
    """Return what a report says of the forms of documents: "chatml 120, plain 3 (trained whole)"."""
    ordered = sorted(forms.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{form} {count:,}{' (trained whole)' if form == PLAIN else ''}" for form, count in ordered)
