r"""Whole documents that are written in a template already: where their assistant turns are, and so what is trained.

    <|user|>\nHow many?</s>\n<|assistant|>\n | Four.</s> | \n<|user|>\nAnd boats?</s>\n<|assistant|>\n | Two.</s>

An answer runs from its marker to the next token that ends turns, which it keeps, or to the next role's marker, which it
does not. Other control tokens (Llama's <|python_tag|>, Mistral's [TOOL_CALLS], a <think>) are part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from expert_cli.data import mask_reasons
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Document, Segment
from expert_cli.data.templates.text_forms import FORMS, TURN_ENDS, Form, any_of

PLAIN = "plain"
"""The form of a text without known markers: all of it is trained."""
FOREIGN = ", in another tokenizer's control tokens"
"""Ends the name of a form whose control tokens the tokenizer does not have: to the model they are words."""
_ROLES = re.compile(r"user|human|assistant|(?<![a-z])bot(?![a-z])|role|(?<!re)turn|header|inst\b", re.IGNORECASE)
"""What control tokens are called that mark turns."""


@dataclass(frozen=True)
class TextReader:
    """Turns whole documents into pieces; the tokens are the compiler's, `end_token` the one that ends an answer."""

    compiler: TemplateCompiler
    end_token: str

    def document(self, text: str, forms: dict[str, int]) -> Document:
        """Return the pieces of a document, its assistant turns trained, and count its form; all of a "plain" one is.

        One of a known form without an answer trains nothing.
        """
        form, turns = self.find_assistant_spans(text)
        if self.compiler.trained.last_alone:
            turns = turns[-1:]
        forms[form] = forms.get(form, 0) + 1
        plain = form.startswith(PLAIN)
        everything = not self.compiler.trained.completion_only
        begins, before = mask_reasons.TURN_MARKER, mask_reasons.text_of_form(form)
        if everything or plain:
            turns = [(0, len(text))]
            begins = mask_reasons.EVERYTHING if everything else mask_reasons.PLAIN_TEXT
        bos, opening = self.compiler.bos_token, mask_reasons.BEGINNING_OF_TEXT
        pieces = [] if text.startswith(bos) else [Segment(bos, True, everything, opening)]
        done = 0
        for start, stop in turns:
            if start > done:
                pieces.append(Segment(text[done:start], True, False, before))
            pieces.append(Segment(text[start:stop], True, True, begins))
            done, before = stop, mask_reasons.AFTER_TURN
        if not turns:
            return (*pieces, Segment(text, True, False, mask_reasons.NO_ANSWER))
        bare = pieces[-1].text.rstrip()
        ended = bare.endswith(tuple(self._ends.union(FORMS[form].ends) if form in FORMS else self._ends))
        if ended or not plain:
            pieces[-1] = pieces[-1]._replace(text=bare)
        if not ended:
            pieces.append(Segment(self.end_token, True, True, mask_reasons.end_is_put(self.end_token)))
        return tuple(pieces)

    def find_assistant_spans(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return the name of a document's form, "plain" without one, and where its assistant turns begin and end.

        A plain one is named with the control tokens in it that look like markers of roles.
        """
        found = {
            name: form for name, form in FORMS.items() if form.hint in text or form.hint in self.compiler.bos_token
        }
        for name, form in found.items():
            turns = list(self._turns(text, form, self._stops[name]))
            if turns:
                return self._named(name, text, turns), [(start, stop) for start, stop in turns if stop > start]
        asked = next((name for name, form in found.items() if form.user and form.user in text), "")
        if asked:
            return self._named(asked, text, []), []
        marked = " ".join(sorted(set(self._role_tokens(text.rstrip()))))
        return f"{PLAIN}, with {marked}" if marked else PLAIN, []

    def _named(self, name: str, text: str, turns: list[tuple[int, int]]) -> str:
        """A form's name, which says so if the control tokens are another tokenizer's."""
        strange = tuple(TURN_ENDS - self.compiler.control_tokens)
        foreign = any(
            token in text and token not in self.compiler.control_tokens for token in FORMS[name].control
        ) or any(text[start:stop].rstrip().endswith(strange) for start, stop in turns)
        return f"{name}{FOREIGN}" if foreign else name

    def _turns(self, text: str, form: Form, stops: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        at = 0
        while marker := form.answers.search(text, at):
            start = at = marker.end()
            found = stops.search(text, start)
            if found is None:
                stop = at = len(text.rstrip())
            elif found["role"]:
                at = found.start()
                stop = start + len(text[start:at].rstrip())
            else:
                stop = at = found.end()
            yield start, max(start, stop)

    @cached_property
    def _ends(self) -> frozenset[str]:
        """The tokens that end a document or a turn, of those the tokenizer has."""
        return frozenset({self.compiler.eos_token, self.end_token} | TURN_ENDS) & self.compiler.control_tokens

    def _role_tokens(self, text: str) -> Iterator[str]:
        """The control tokens in a text that look like markers of roles, but for those that open and end any text."""
        start = len(self.compiler.bos_token) if text.startswith(self.compiler.bos_token) else 0
        for found in self._roles.finditer(text, start) if self._roles else ():
            if found.end() < len(text) or found[0] not in self._ends:
                yield found[0]

    @cached_property
    def _roles(self) -> re.Pattern[str] | None:
        tokens = [token for token in self.compiler.control_tokens if _ROLES.search(token)]
        return re.compile(any_of(tokens)) if tokens else None

    @cached_property
    def _stops(self) -> dict[str, re.Pattern[str]]:
        """What may end a turn of each form: a role's marker or a token that ends turns, be it another tokenizer's."""
        return {name: self._stop(form) for name, form in FORMS.items()}

    def _stop(self, form: Form) -> re.Pattern[str]:
        ends = any_of(self._ends.union(form.ends, TURN_ENDS.intersection(form.control)))
        going_on = f"(?!{form.goes_on})" if form.goes_on else ""
        return re.compile(f"(?P<role>{form.role or re.escape(form.hint)})|(?:{ends}){going_on}", re.MULTILINE)


def foreign_texts(forms: Mapping[str, int]) -> int:
    """Return how many documents are written in control tokens that the tokenizer does not have."""
    return sum(count for form, count in forms.items() if form.endswith(FOREIGN))


def describe_forms(forms: Mapping[str, int]) -> str:
    """Return what a report says of the forms of documents: "chatml 120, plain 3 (trained whole)"."""
    ordered = sorted(forms.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{form} {count:,}{' (trained whole)' if form.startswith(PLAIN) else ''}" for form, count in ordered
    )
