"""The tokens of a document as lines: each begins with a mark that says what becomes of its tokens, a bar stands between them.

trained: the answer begins: the template's generation prompt ends here
» SELECT¦ count¦(¦*¦)
"""

from __future__ import annotations

from collections.abc import Iterator

from expert_cli.utils.text import clean
from expert_cli.utils.token_runs import TokenRun

STYLES = {"trained": "cyan", "not trained": "yellow", "left out": "dim"}
"""On a terminal: of the usual forms of color blindness none takes one for another."""
_MARKS = {"trained": "»", "not trained": "|", "left out": "×"}
_BETWEEN = "¦"
_INDENT = 4


def lines(run: TokenRun) -> Iterator[str]:
    """Yield a run, its lines not wrapped, so that they can be searched."""
    for reason in run.reasons:
        yield f"{' ' * _INDENT}{run.state}: {clean(reason)}"
    text = _BETWEEN.join(clean(token.shown) for token in run.tokens if token.shown)
    for line in text.removesuffix("\n").split("\n"):
        yield f"{_MARKS[run.state]} {line}"
