"""Takes the answer out of what a model wrote: no thinking, nothing after the end, only the code where there is a fence."""

from __future__ import annotations

import re
from collections.abc import Collection

RULE = (
    "What a model writes ends at the first stop sequence of its manifest (training.decoding.stop_sequences); thinking "
    "(<think>...</think>) is left out, the text ends at the first end token, and of fenced blocks the last one marked "
    "with the language counts, else the last one with no mark or marked as text; without a fence the whole text is the answer."
)

# The first kind stands in no program; `</s>` is also HTML, so that it ends the text only at the end of a line.
_END = re.compile(
    r"<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|im_start|user|assistant|system)\|>(?:assistant\s)?"
    r"|<｜end▁of▁sentence｜>"
    r"|(?:</s>|<eos>|<end_of_turn>)[ \t\r]*$",
    re.MULTILINE,
)
# Only at the start of a line: a program may hold the word in a string.
_THOUGHT = re.compile(r"^[ \t]*<think>(?:.*?</think>|.*)", re.MULTILINE | re.DOTALL)
_THOUGHT_END = re.compile(r"^[ \t]*</think>|</think>[ \t\r]*$", re.MULTILINE)
# A byte order mark and a zero-width space are no blanks to Python.
_FENCE = re.compile(r"[\ufeff\u200b]*(`{3,}|~{3,}(?!~))([^`]*)")
_UNMARKED = ("", "text", "txt", "plain", "plaintext")
_ONE_LINE = re.compile(r"[\ufeff\u200b]*```([^`\n]+)```")


def extract(text: str, fences: Collection[str]) -> str:
    """Return the answer in `text` by `RULE`; `fences`: the marks of a block in its language.

    `inference/generate.py`, which knows the manifest, has cut the text at its stop sequences.
    The last block, because a model that corrects itself does so below its first try; a marked one before a bare one,
    because bare blocks often show output. A block that is not closed (the length limit came first) goes to the end.
    """
    text = _until_end(_without_thoughts(text))
    single = _ONE_LINE.fullmatch(text.strip())
    if single:
        first, _, rest = single[1].partition(" ")
        return (rest if first.lower() in (*fences, *_UNMARKED) else single[1]).strip()
    marked, bare = None, None
    for mark, block in _blocks(text):
        if mark in fences:
            marked = block
        elif mark in _UNMARKED:
            bare = block
    found = bare if marked is None else marked
    return (text if found is None else found).strip()


def _without_thoughts(text: str) -> str:
    """Chat templates may open the thinking in the prompt: then only its end stands in the text."""
    text = _THOUGHT.sub("", text)
    end = _THOUGHT_END.search(text)
    return text[end.end() :] if end else text


def _until_end(text: str) -> str:
    """What stands before the first end token that follows something: some models begin with one."""
    start = 0
    for end in _END.finditer(text):
        if text[start : end.start()].strip():
            return text[start : end.start()]
        start = end.end()
    return text[start:]


def _blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks with their marks in lower case; a fence is closed by one at least as long on its own line."""
    blocks: list[tuple[str, str]] = []
    fence, mark, lines = "", "", list[str]()
    for line in text.split("\n"):
        words = line.strip()
        if not fence:
            opening = _FENCE.fullmatch(words)
            if opening:
                fence, lines = opening[1], []
                mark = " ".join(opening[2].lower().split()[:1])
        elif words.startswith(fence) and not words.strip(fence[0]):
            blocks.append((mark, "\n".join(lines)))
            fence = ""
        else:
            lines.append(line)
    if fence:
        blocks.append((mark, "\n".join(lines)))
    return blocks
