"""The tokens of a document as lines: each begins with a mark that says what becomes of its tokens, a bar stands between them.

» SELECT¦ count¦(¦*¦)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from expert_cli.utils.text import Token, clean

STYLES = {"trained": "cyan", "not trained": "yellow", "left out": "dim"}
"""On a terminal: of the usual forms of color blindness none takes one for another."""
_MARKS = {"trained": "»", "not trained": "|", "left out": "×"}
_BETWEEN = "¦"


def lines(state: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield a run of tokens, its lines not wrapped, so that they can be searched; line ends are marked."""
    shown = (clean(token.text.replace("\n", "¶\n")) for token in tokens if token.text)
    for line in _BETWEEN.join(shown).removesuffix("\n").split("\n"):
        yield f"{_MARKS[state]} {line}"
