"""Extracts the answer from a model's text: without thinking, cut at the end token, and only the code of a fenced block."""

from __future__ import annotations

import re
from collections.abc import Collection

# The first group never occurs in a program; `</s>` is also HTML, so it counts only at the end of a line.
_END = re.compile(
    r"<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|im_start|user|assistant|system)\|>(?:assistant\s)?"
    r"|<｜end▁of▁sentence｜>"
    r"|(?:</s>|<eos>|<end_of_turn>)[ \t\r]*$",
    re.MULTILINE,
)
# Only at the start of a line: a program may contain the word in a string.
_THOUGHT = re.compile(r"^[ \t]*<think>(?:.*?</think>|.*)", re.MULTILINE | re.DOTALL)
_THOUGHT_END = re.compile(r"^[ \t]*</think>|</think>[ \t\r]*$", re.MULTILINE)
# A fence is closed by a line with a fence that is at least as long; an unclosed block extends to the end of the text.
_BLOCK = re.compile(
    r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)(?P<mark>[^`\n]*+)(?:\n|\Z)(?P<code>.*?)(?:^[ \t]*+(?P=fence)[`~]*+[ \t\r]*+$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_UNMARKED = ("", "text", "txt", "plain", "plaintext")
_ONE_LINE = re.compile(r"```([^`\n]+)```")


MAX_CHARACTERS = 4_000_000
"""Longer texts are cut, because the time limit does not cover extraction."""


def extract(text: str, fences: Collection[str]) -> str:
    """Return the answer in `text`, cut at end tokens. fences: names of its language in fenced blocks.

    The last block with such a name counts, because a model that corrects itself does so after its first attempt. Without one,
    the last block that has no name or is named as text counts; without any such block, the whole text.
    """
    text = _THOUGHT.sub("", text[:MAX_CHARACTERS])
    if thought_end := _THOUGHT_END.search(text):  # the chat template may have opened the thinking in the prompt
        text = text[thought_end.end() :]
    text = _END.split(text, maxsplit=1)[0]
    if single := _ONE_LINE.fullmatch(text.strip()):
        first, _, rest = single[1].partition(" ")
        return (rest if first.lower() in (*fences, *_UNMARKED) else single[1]).strip()
    blocks = [(" ".join(block["mark"].lower().split()[:1]), block) for block in _BLOCK.finditer(text)]
    marked = [block["code"] for mark, block in blocks if mark in fences]
    bare = [block for mark, block in blocks if mark in _UNMARKED]
    if bare and not bare[-1]["code"].strip() and (before := text[: bare[-1].start()].strip()) and len(blocks) == 1:
        return before  # the prompt opened the block that ends here
    return (marked or [block["code"] for block in bare] or [text])[-1].strip()
