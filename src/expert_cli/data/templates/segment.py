"""A document before it is tokenized: pieces of text, each either the template's own or the user's, trained or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from expert_cli.data import mask_reasons


class Segment(NamedTuple):
    """One piece of a document.

    control: the template's own text, whose control tokens ("<|im_end|>") become control ids. Otherwise the text is the
    user's: a control token's spelling in it stays plain text. trained: its tokens carry loss. reason: why they do so, or not,
    from here on; "": for the reason of the piece before.
    """

    text: str
    control: bool
    trained: bool
    reason: str = ""


Document = tuple[Segment, ...]


class TurnMask(NamedTuple):
    """Whether the tokens of a turn carry loss; reason: why not, "" = nothing says, or the turn is trained."""

    trained: bool
    reason: str = ""


class Span(NamedTuple):
    """Where a turn begins and ends in the text of its conversation, its end token included, and whether it is trained.

    begins, ends, after: why it begins there, why it ends with the token that it ends with ("" = with none), and what follows.
    """

    trained: bool
    start: int
    stop: int
    begins: str
    ends: str
    after: str

    @classmethod
    def of_turn(cls, role: str, mask: TurnMask, start: int, stop: int, begins: str, token: str) -> Span:
        """Return the span of a turn; begins: why an answer begins there; token: the one that ends it, "" = none does."""
        if not mask.trained:
            return cls(False, start, stop, mask.reason or mask_reasons.NOT_TRAINED, "", mask_reasons.PROMPT)
        ends = mask_reasons.ends_with(token, "answer" if role == "assistant" else "turn") if token else ""
        if role != "assistant":
            return cls(True, start, stop, mask_reasons.turn_of(role), ends, mask_reasons.PROMPT)
        return cls(True, start, stop, begins, ends, mask_reasons.AFTER_ANSWER if token else mask_reasons.UNENDED)


P = TypeVar("P", bound=NamedTuple)


def with_reasons(pieces: Iterable[P], begins: str, ends: str) -> list[P]:
    """Return the pieces of a stretch with why it begins, on the first, and why it ends, on the last, its end token."""
    found: list[Any] = list(pieces)
    for at, reason in ((0, begins), (-1, ends)):
        if found and reason:
            before = found[at].reason
            found[at] = found[at]._replace(reason=f"{before}; {reason}" if before else reason)
    return found
