"""A chat template, rendered once for a sequence of roles and cut where the contents go.

Private-use characters stand in for the contents, so that rows never pass through jinja and nothing in them can become
a control token. What stands between two control tokens is one piece, as the tokenizer sees it at inference; only the
border between prompt and answer always cuts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import NamedTuple

from expert_cli.data.segments import Document, Segment
from expert_cli.errors import InputError

RenderChat = Callable[[list[dict[str, str]], bool], str]

_PLACE = re.compile("\ue000(\\d+)\ue001")
# The probe has a tab on either side of each place, which tells whether the template trims what it is given.
_PROBE = re.compile("(\t?)\ue000(\\d+)\ue001(\t?)")


class Slot(NamedTuple):
    """A piece that rows fill in: constant text and the numbers of messages, in order."""

    parts: tuple[str | int, ...]
    trained: bool


class PieceColumn(NamedTuple):
    """One piece of many documents: the same text in all of them, or the users' texts, one a document."""

    texts: str | list[str]
    control: bool
    trained: bool


@dataclass(frozen=True)
class Skeleton:
    """The pieces of a conversation, the last answer apart; `trims` says which messages the template strips where."""

    prompt: tuple[Segment | Slot, ...]
    answer: tuple[Segment | Slot, ...]
    trims: dict[int, tuple[bool, bool]]
    end_token: str

    def fill(self, contents: Sequence[str], *, with_answer: bool) -> Document:
        """Put the messages' contents in their places."""
        if self.trims:
            contents = [_strip(text, *self.trims.get(i, (False, False))) for i, text in enumerate(contents)]
        return tuple(
            part
            if isinstance(part, Segment)
            else Segment("".join([p if isinstance(p, str) else contents[p] for p in part.parts]), False, part.trained)
            for part in (self.prompt + self.answer if with_answer else self.prompt)
        )

    def fill_columns(self, contents: Sequence[list[str]]) -> list[PieceColumn]:
        """Put the messages' contents, column by column, in their places: the documents of `fill` with their answers."""
        stripped = [
            [_strip(text, *self.trims[number]) for text in column] if number in self.trims else column
            for number, column in enumerate(contents)
        ]
        return [
            PieceColumn(*part)
            if isinstance(part, Segment)
            else PieceColumn(_joined(part, stripped), False, part.trained)
            for part in self.prompt + self.answer
        ]


@dataclass(frozen=True)
class Carver:
    """Cuts a template into skeletons; `render` is the template, the tokens are the tokenizer's."""

    render: RenderChat
    control_tokens: frozenset[str]
    eos_token: str
    bos_token: str
    completion_only: bool

    def carve(self, roles: tuple[str, ...]) -> Skeleton:
        """Return the skeleton of `roles`, the last of which is the answer's.

        The prompt is what the template renders before the answer with its generation prompt. What the template puts
        between the two (Qwen3's empty think block) is left out, so that training sees the ids that generation sees; a
        space there is the answer's. After the answer comes what closes it, up to its end token, and nothing more.
        Raises InputError if the template refuses the roles or does not show every message exactly once.
        """
        messages = [{"role": role, "content": f"\t{_place(i)}\t"} for i, role in enumerate(roles)]
        trims: dict[int, tuple[bool, bool]] = {}
        prompt = self._probe(messages[:-1], True, trims)
        full = self._probe(messages, False, trims)
        before, after = full.split(_place(len(roles) - 1))
        gap = before[len(prompt) :] if before.startswith(prompt) else ""
        gap = "" if gap.strip(" ") else gap
        end = self._control.search(after)
        closing, end_token = (after[: end.end()], end[0]) if end else (self.eos_token, self.eos_token)
        if not prompt.startswith(self.bos_token):
            prompt = self.bos_token + prompt
        earlier = [i for i, role in enumerate(roles[:-1]) if role == "assistant"]
        answer = self._pieces(gap + _place(len(roles) - 1) + closing, True)
        return Skeleton(self._prompt(prompt, earlier, gap, end_token), answer, trims, end_token)

    def _probe(self, messages: list[dict[str, str]], generate: bool, trims: dict[int, tuple[bool, bool]]) -> str:
        """Render; check that every message is there exactly once and note in `trims` which ones are stripped."""
        text = render_safely(self.render, messages, generate)
        matches = list(_PROBE.finditer(text))
        if sorted(int(match[2]) for match in matches) != list(range(len(messages))):
            roles = ", ".join(message["role"] for message in messages)
            raise InputError(
                f"the chat template does not show each message of a conversation of {roles} once, as it was given",
                'Set another "prompt_template": with this one rows would lose, repeat or change text.',
            )
        trims.update({int(m[2]): (not m[1], not m[3]) for m in matches if not (m[1] and m[3])})
        return _PROBE.sub(lambda match: _place(int(match[2])), text)

    def _prompt(self, text: str, answers: list[int], gap: str, end_token: str) -> tuple[Segment | Slot, ...]:
        """Cut the prompt at its earlier answers, which are trained with the end token that follows them."""
        cuts = [0]
        for number in answers:
            start = text.index(_place(number))
            stop = start + len(_place(number))
            closing = self._control.search(text, stop)
            if closing and closing[0] == end_token and not _PLACE.search(text, stop, closing.start()):
                stop = closing.end()
            cuts += [start - len(gap) if text[:start].endswith(gap) else start, stop]
        stretches = [text[a:b] for a, b in pairwise([*cuts, len(text)])]
        return tuple(piece for n, part in enumerate(stretches) for piece in self._pieces(part, n % 2 == 1))

    def _pieces(self, text: str, answer: bool) -> tuple[Segment | Slot, ...]:
        """Cut a stretch at its control tokens, keeping together what no row's text stands between."""
        trained = answer or not self.completion_only
        pieces: list[Segment | Slot] = []
        constant = ""
        for part in self._control.split(text):
            if _PLACE.search(part):
                pieces += [Segment(constant, True, trained)] if constant else []
                constant = ""
                around = _PLACE.split(part)
                parts = (int(p) if n % 2 else p for n, p in enumerate(around))
                pieces.append(Slot(tuple(p for p in parts if p != ""), trained))
            else:
                constant += part
        pieces += [Segment(constant, True, trained)] if constant else []
        return tuple(pieces)

    @cached_property
    def _control(self) -> re.Pattern[str]:
        longest_first = sorted(self.control_tokens, key=lambda token: (-len(token), token))
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")


def render_safely(render: RenderChat, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    """Render; whatever someone else's template raises becomes an InputError that names the roles."""
    try:
        return render(messages, add_generation_prompt)
    except Exception as error:  # a template is a program that came with the tokenizer: it may raise anything
        roles = ", ".join(message["role"] for message in messages)
        raise InputError(
            f"the chat template refuses a conversation of {roles}: {error}",
            'Give the rows the roles it knows, or set another "prompt_template".',
        ) from error


def _joined(slot: Slot, contents: Sequence[list[str]]) -> list[str]:
    """The texts of a slot, one a document."""
    numbers = [part for part in slot.parts if isinstance(part, int)]
    if len(numbers) > 1:
        columns = [repeat(part) if isinstance(part, str) else contents[part] for part in slot.parts]
        return ["".join(parts) for parts in zip(*columns, strict=False)]
    at = slot.parts.index(numbers[0])
    before, after = ("".join(map(str, parts)) for parts in (slot.parts[:at], slot.parts[at + 1 :]))
    column = contents[numbers[0]]
    return [f"{before}{text}{after}" for text in column] if before or after else column


def _place(number: int) -> str:
    return f"\ue000{number}\ue001"


def _strip(text: str, left: bool, right: bool) -> str:
    return text.strip() if left and right else text.lstrip() if left else text.rstrip() if right else text
