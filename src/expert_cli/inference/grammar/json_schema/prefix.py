"""The beginning of a JSON text as values, of which the last may be open: `{"a": [1, "x` is an object of a list of 1 and a text.

What is closed is the plain Python value. Names are unique in an object, nesting and digits are bounded: a judge reads so too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

MAX_DEPTH = 100
MAX_DIGITS = 1_000
MAX_SPACE = 64
"""White space between two parts: a line's deepest indentation, and no answer of blanks alone."""

_SPACE = " \n\r\t"
_WORDS = {"true": True, "false": False, "null": None}
_HEX = "[0-9a-fA-F]"
_WHOLE = re.compile(
    rf'(?:[^"\\\x00-\x1f\ud800-\udfff]|\\["\\/bfnrt]|\\u(?:[0-9a-ce-fA-CE-F]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}'
    rf"|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))*"
)
_HALF = re.compile(
    rf"\\(?:u(?:[0-9a-ce-fA-CE-F]{_HEX}{{0,2}}|[dD](?:[0-7]{_HEX}?|[89abAB]{_HEX}?)?"
    rf"|[dD][89abAB]{_HEX}{{2}}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?"
)
_NUMBER_LETTERS = re.compile(r"[-+.eE0-9]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGINNING = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?:\.[0-9]+)?[eE][+-]?[0-9]*)?)?")

Mode = Literal["value", "first item", "name", "first name", "colon", "after", "string", "number", "word"]


class Nothing:
    """A value that is due."""


NOTHING = Nothing()


@dataclass(frozen=True)
class Text:
    """An open string as it is written, and the beginning of an escape at its end."""

    raw: str = ""
    half: str = ""

    @property
    def value(self) -> str:
        """The characters that are whole."""
        return str(json.loads(f'"{self.raw}"'))


@dataclass(frozen=True)
class Number:
    """Digits that may go on."""

    raw: str

    @property
    def whole(self) -> bool:
        """Whether it may end here."""
        return _NUMBER.fullmatch(self.raw) is not None

    @property
    def value(self) -> int | float:
        """The number, if it ends here."""
        return float(self.raw) if set(self.raw) & set(".eE") else int(self.raw)


@dataclass(frozen=True)
class Word:
    """The beginning of true, false or null."""

    raw: str


@dataclass
class Array:
    """An open list; the last of `items` is open or due where the text goes on with it."""

    items: list[Any] = field(default_factory=list)


@dataclass
class Object:
    """An open object; the value of the last of `members` is open or due. name: one that is being written or due."""

    members: dict[str, Any] = field(default_factory=dict)
    name: Text | None = None


Container = Array | Object


class JsonPrefix:
    """A text read up to its end. root: its value."""

    def __init__(self) -> None:
        """Begin before the first character."""
        self.root: Any = NOTHING
        self._stack: list[Container] = []
        self._leaf: Text | Number | Word = Text()
        self._mode: Mode = "value"
        self._spaces = 0

    def copy(self) -> JsonPrefix:
        """Return one that goes on by itself; closed values are shared."""
        other = JsonPrefix()
        other.root, other._leaf, other._mode, other._spaces = self.root, self._leaf, self._mode, self._spaces
        for one in self._stack:
            fresh = Array(list(one.items)) if isinstance(one, Array) else replace(one, members=dict(one.members))
            other._put(fresh)
            other._stack.append(fresh)
        return other

    def feed(self, text: str) -> bool:
        """Read on; False where no JSON begins so. It is of no use then."""
        place = 0
        while place < len(text):
            after = self._read(text, place)
            if after is None:
                return False
            place = after
        if self._mode in ("string", "number", "word"):
            self._keep_leaf()
        return True

    def ended(self) -> Any:
        """Return the value if the text ends here, else NOTHING."""
        if self._mode == "number" and not self._stack and isinstance(self._leaf, Number) and self._leaf.whole:
            return self._leaf.value
        return self.root if self._mode == "after" and not self._stack else NOTHING

    def _read(self, text: str, place: int) -> int | None:
        """Read one part that begins at a place, and return where the next begins."""
        if self._mode == "string":
            return self._read_text(text, place)
        if self._mode == "number":
            return self._read_number(text, place)
        letter = text[place]
        if self._mode == "word":
            return place + 1 if self._read_word(letter) else None
        if letter in _SPACE:
            self._spaces += 1
            return place + 1 if self._spaces <= MAX_SPACE else None
        self._spaces = 0
        if letter in "]}":
            return place + 1 if self._close(letter) else None
        if self._mode in ("value", "first item"):
            return self._begin(letter, place)
        return place + 1 if self._punctuation(letter) else None

    def _begin(self, letter: str, place: int) -> int | None:
        """Begin a value."""
        if self._mode == "first item":
            self._stack[-1].items.append(NOTHING)  # type: ignore[union-attr]
        if letter == '"':
            self._leaf, self._mode = Text(), "string"
        elif letter in "-0123456789":
            self._leaf, self._mode = Number(""), "number"
            return place
        elif letter in "tfn":
            self._leaf, self._mode = Word(letter), "word"
        elif letter in "[{" and len(self._stack) < MAX_DEPTH:
            fresh: Container = Array() if letter == "[" else Object()
            self._put(fresh)
            self._stack.append(fresh)
            self._mode = "first item" if letter == "[" else "first name"
        else:
            return None
        return place + 1

    def _punctuation(self, letter: str) -> bool:
        """Read what stands between values: a comma, a colon, the quote that opens a name."""
        top = self._stack[-1] if self._stack else None
        if letter == "," and self._mode == "after" and top is not None:
            if isinstance(top, Array):
                top.items.append(NOTHING)
                self._mode = "value"
            else:
                top.name = Text()
                self._mode = "name"
        elif letter == ":" and self._mode == "colon":
            self._mode = "value"
        elif letter == '"' and self._mode in ("name", "first name") and isinstance(top, Object):
            top.name = self._leaf = Text()
            self._mode = "string"
        else:
            return False
        return True

    def _read_text(self, text: str, place: int) -> int | None:
        leaf = self._leaf
        assert isinstance(leaf, Text)  # noqa: S101  the mode says so
        rest = leaf.half + text[place:]
        found = _WHOLE.match(rest)
        end = found.end() if found else 0
        leaf = self._leaf = Text(leaf.raw + rest[:end], rest[end:])
        if not leaf.half:
            return len(text)
        if leaf.half[0] != '"':
            return len(text) if _HALF.fullmatch(leaf.half) else None
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Object) and top.name is not None:
            if leaf.half and replace(leaf, half="").value in top.members:
                return None
            top.members[leaf.value], top.name = NOTHING, None
            self._mode = "colon"
        else:
            self._close_leaf(leaf.value)
        return len(text) - len(leaf.half) + 1

    def _read_number(self, text: str, place: int) -> int | None:
        leaf = self._leaf
        assert isinstance(leaf, Number)  # noqa: S101  the mode says so
        found = _NUMBER_LETTERS.match(text, place)
        if found:
            leaf = self._leaf = Number(leaf.raw + found[0])
            fits = len(leaf.raw) <= MAX_DIGITS and _NUMBER_BEGINNING.fullmatch(leaf.raw)
            beyond = leaf.whole and leaf.value in (inf, -inf)
            return found.end() if fits and not beyond else None
        if not leaf.whole:
            return None
        self._close_leaf(leaf.value)
        return place

    def _read_word(self, letter: str) -> bool:
        raw = self._leaf.raw + letter
        self._leaf = Word(raw)
        if raw in _WORDS:
            self._close_leaf(_WORDS[raw])
        return any(word.startswith(raw) for word in _WORDS)

    def _close(self, letter: str) -> bool:
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Array) and letter == "]" and self._mode in ("after", "first item"):
            value: Any = top.items
        elif isinstance(top, Object) and letter == "}" and self._mode in ("after", "first name"):
            value = top.members
        else:
            return False
        self._stack.pop()
        self._close_leaf(value)
        return True

    def _close_leaf(self, value: Any) -> None:
        self._put(value)
        self._mode = "after"

    def _keep_leaf(self) -> None:
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Object) and top.name is not None and isinstance(self._leaf, Text):
            top.name = self._leaf
        else:
            self._put(self._leaf)

    def _put(self, value: Any) -> None:
        """Put a value where one is due, or where it stood open."""
        top = self._stack[-1] if self._stack else None
        if top is None:
            self.root = value
        elif isinstance(top, Array):
            top.items[-1] = value
        else:
            top.members[next(reversed(top.members))] = value
