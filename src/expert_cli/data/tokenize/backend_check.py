"""Which engine encodes: fastokens is used once it has given the ids of `tokenizers` on the rows and on what breaks others.

The verdict is remembered by tokenizer and by the versions of both, in one small file:

    engines.json   {"<16 hex digits>": {"engines": "fastokens 0.3.5, tokenizers 0.23.3", "fault": ""}}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from expert_cli.data.tokenize.backends import FastokensBackend, HFTokenizersBackend, TokenizerBackend, by_text
from expert_cli.utils.files import parse_json, write_json

_SAMPLE_BYTES = 256_000
_FILE = "engines.json"
_FORMAT = 2


@dataclass(frozen=True)
class BackendChoice:
    """The engine to use and why."""

    engine: TokenizerBackend
    reason: str


class BackendSelector:
    """Chooses the engine for a tokenizer. fastokens takes 0.2 s to load it, which a thread does from the start."""

    def __init__(self, reference: HFTokenizersBackend, written: str, control: Sequence[str], cache: Path) -> None:
        """Begin to load.

        written: the tokenizer.json that `reference` was made of. control: the spellings of control tokens. cache: the
        folder that remembers verdicts; one that cannot be read or written only costs time.
        """
        self._reference = reference
        self._written = written
        self._control = control
        self._file = cache / _FILE
        with_thread = ThreadPoolExecutor(1)
        try:
            self._fast = with_thread.submit(FastokensBackend, reference)
        finally:  # Ctrl-C while the thread starts would leave one that waits for work, and a process that never ends
            with_thread.shutdown(wait=False)

    def choose(self, sample: Sequence[str]) -> BackendChoice:
        """Choose by what is remembered, else by a comparison on at most 256 kB of `sample`, texts of the rows."""
        reference = self._reference
        try:
            fast = self._fast.result()
        except ImportError:
            return BackendChoice(reference, "fastokens has no build for this Python or system")
        except ValueError as error:
            return BackendChoice(reference, f"fastokens cannot handle this tokenizer: {str(error)[:200]}")
        engines = f"{fast.name}, {reference.name}"
        key = hashlib.sha256(f"{_FORMAT} {engines} {self._control} {self._written}".encode()).hexdigest()[:16]
        verdicts = _remembered(self._file)
        if key not in verdicts:
            verdicts[key] = {"engines": engines, "fault": find_difference(fast, reference, sample, self._control)}
            with suppress(OSError):
                write_json(self._file, verdicts)
        fault = verdicts[key]["fault"]
        if fault:
            return BackendChoice(reference, f"{fast.name} gives other ids than {reference.name}: {fault}")
        return BackendChoice(fast, f"gives the ids of {reference.name}")


def find_difference(
    fast: TokenizerBackend, reference: TokenizerBackend, sample: Sequence[str], control: Sequence[str]
) -> str:
    """Return the first text (shortened) whose ids differ, "" if there is none."""
    texts = [*stress_texts(control), *_evenly(sample, _SAMPLE_BYTES)]
    for trusted in (False, True):
        try:
            found = by_text(*fast.encode(texts, control=trusted))
        except ValueError as error:
            return f"it fails: {str(error)[:200]}"
        right = by_text(*reference.encode(texts, control=trusted))
        for text, mine, ids in zip(texts, found, right, strict=True):
            if not np.array_equal(mine, ids):
                return ascii(text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)")
    return ""


def stress_texts(control: Sequence[str]) -> list[str]:
    """Return texts that have broken tokenizers: about 150 kB, the same on every machine."""
    words = ("it's IT'S I'll we'VE they'Re 'tis ſ's K's", "x1y22z333 4,5 6.7e-8 0x9 1st", " ", "a", "")
    white = [before + space * times + after for space in _SPACES for times in (1, 2, 3) for before, after in _EDGES]
    marks = [
        text for token in control for text in (token, f"a{token}b", f" {token} ", token[:-1], f"{token[0]}{token}1")
    ]
    characters = [chr(code) for code in _CODES]
    scripts = ["".join(characters[start : start + 64]) for start in range(0, len(characters), 64)]
    spaced = [" ".join(characters[start : start + 64]) for start in range(0, len(characters), 64)]
    return [*words, *white, *marks, *scripts, *spaced, *_COMPOSED, *_LONG, *_ALIKE]


_SPACES = (*" \t\n\r\v\f\x1c\x85\xa0\u1680\u2003\u2028\u3000\u200b\ufeff", "\r\n", "\n ", " \n")
_EDGES = (("", ""), ("a", ""), ("", "b"), ("a", "b"), ("?", "!"), ("1", "2"), ("a", "²"), ("'", "s"), ("é", "漢"))
# Everything up to Arabic, then samples: marks, symbols, numerals, ideographs, emoji, private use, the last planes.
_CODES = (
    *range(0x700),
    *range(0x900, 0x1000, 7),
    *range(0x2000, 0x2700),
    *range(0x3000, 0xD800, 331),
    *range(0xE000, 0x11000, 211),
    *range(0x1D7C0, 0x1D800),
    *range(0x1F300, 0x1FB00, 13),
    *range(0x1FBF0, 0x1FC00),
    0x20000,
    0xE0001,
    0xF0000,
    0x10FFFF,
)
_COMPOSED = (
    "e\u0301\u0301 \u0301 \u0301a q\u0307\u0323 \u0344 \u212b \ufb01 \uac00\u11a8 \u1100\u1161",
    "👨\u200d👩\u200d👧\u200d👦 👍🏽 🇩🇪🇩 ❤\ufe0f 1\ufe0f\u20e3",
    "\x00 a\x00\x00b \x01\x04\x1d\x7f",
    "\u202eright\u202c to \u05d0\u05d1 \u0661\u0662 ½²① Ⅳ 四 \U0001d7d8",
    "def f(x):\n\treturn  {\n    'a':   [1,  2],   }  # ...\r\n\r\n\n",
)
# Long enough for an engine to cut them, and to remember a beginning.
_LONG = (
    "a" * 5000,
    "é" * 3000,
    "!?" * 2000,
    "1" * 3000,
    "ab " * 7000,
    " " * 6000 + "x",
    "x" + "\n" * 3000 + " " * 2500,
    "\n".join(f"line {n}   {'x' * (n % 90)}" for n in range(600)),
    "word " * 2000 + " " * 2200 + "word " * 2000,
)
_ALIKE = tuple("same beginning  " * 300 + end for end in ("", "   ", "   y", "   3", "\n", "s", "'s"))


def _evenly(texts: Sequence[str], at_most_bytes: int) -> Iterator[str]:
    """Texts from all over, in order, until their bytes are used up."""
    some = texts[:: len(texts) // 500 + 1]
    mean = sum(len(text.encode()) for text in some) / max(len(some), 1)
    step = max(1, ceil(len(texts) * mean / at_most_bytes))
    left = at_most_bytes
    for text in texts[::step]:
        left -= len(text.encode())
        if left < 0:
            return
        yield text


def _remembered(file: Path) -> dict[str, dict[str, str]]:
    """The verdicts of a file; none if it is not there or not ours."""
    try:
        verdicts = parse_json(file.read_bytes())
        return {str(key): {"engines": str(v["engines"]), "fault": str(v["fault"])} for key, v in verdicts.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
