"""The tokens of a document as lines: what is trained stands on blue, what is not on orange, one token darker than the next.

Each line begins with a mark that says the same without colors; there a broken bar stands between tokens:

        trained: the answer begins: the template's generation prompt ends here
    » SELECT¦ count¦(¦*¦)

Of the usual forms of color blindness none takes blue for orange; text and ground are both given, so that they can be read on
a dark terminal and on a light one.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.style import Style
from rich.text import Text

from expert_cli.utils.text import clean
from expert_cli.utils.token_runs import TokenRun

_MARKS = {"trained": "»", "not trained": "|", "left out": "×"}
_SHADES = {
    "trained": ("#a9d1ff", "#cfe6ff"),
    "not trained": ("#f3d3a6", "#fae9d0"),
    "left out": ("#c8c8c8", "#dcdcdc"),
}
_SHADES_OF_16 = {
    "trained": ("cyan", "bright_cyan"),
    "not trained": ("yellow", "bright_yellow"),
    "left out": ("white", "bright_white"),
}
_INK, _SOFT_INK = "#101010", "#6e6e6e"  # by name, black would be grey on a terminal that brightens what is bold
_BETWEEN = "¦"
_INDENT = 4


def plain_lines(run: TokenRun) -> Iterator[str]:
    """Yield a run without colors, its lines not wrapped, so that they can be searched."""
    for reason in run.reasons:
        yield f"{' ' * _INDENT}{run.state}: {clean(reason)}"
    text = _BETWEEN.join(clean(token.shown) for token in run.tokens if token.shown)
    for line in text.removesuffix("\n").split("\n"):
        yield f"{_MARKS[run.state]} {line}"


def colored_lines(run: TokenRun, console: Console) -> Iterator[Text]:
    """Yield a run in colors, in the width of a terminal."""
    shades = (_SHADES_OF_16 if console.color_system in ("standard", "windows") else _SHADES)[run.state]
    ground = Style.parse(f"bold {_INK} on {shades[0]}")
    for reason in run.reasons:
        yield Text.assemble((f"{' ' * _INDENT}{run.state}", "bold"), f": {clean(reason)}")
    text = Text()
    for number, token in enumerate(filter(lambda token: token.shown, run.tokens)):
        style = Style.parse(f"{_INK} on {shades[number % 2]}") + Style(bold=token.special, strike=not run.kept)
        text.append(clean(token.shown), style)
    text.highlight_regex("¶", _SOFT_INK)
    for line in text.split("\n", allow_blank=not text.plain.endswith("\n")):
        for part in line.wrap(console, max(console.width - 2, 1), overflow="fold"):
            yield Text.assemble((_MARKS[run.state], ground), " ", part)
