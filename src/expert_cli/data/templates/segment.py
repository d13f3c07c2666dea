"""A document before it is tokenized: pieces of text, each either the template's own or the user's, trained or not."""

from __future__ import annotations

from typing import NamedTuple


class Segment(NamedTuple):
    """One piece of a document.

    control: the template's own text, whose control tokens ("<|im_end|>") become control ids. Otherwise the text is the
    user's: a control token's spelling in it stays plain text. trained: its tokens carry loss.
    """

    text: str
    control: bool
    trained: bool


Document = tuple[Segment, ...]
