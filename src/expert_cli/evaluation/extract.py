"""Takes the answer out of what a model wrote: no thinking, nothing after the end, only the code where there is a fence."""

from __future__ import annotations

import re
from collections.abc import Collection

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
# A fence is closed by one at least as long on its own line; where the length limit came first, its block goes to the end.
_BLOCK = re.compile(
    r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)(?P<mark>[^`\n]*+)(?:\n|\Z)(?P<code>.*?)(?:^[ \t]*+(?P=fence)[`~]*+[ \t\r]*+$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_UNMARKED = ("", "text", "txt", "plain", "plaintext")
_ONE_LINE = re.compile(r"```([^`\n]+)```")


MAX_CHARACTERS = 4_000_000
"""Of a text that an answer is looked for in, which takes time by its length, before any limit of time counts."""


def extract(text: str, fences: Collection[str]) -> str:
    """Return the answer in `text`, cut at stop sequences; `fences`: the marks of a block in its language.

    Of fenced blocks the last one counts that is marked so, because a model that corrects itself does so below its first try;
    else the last one that is bare or marked as text: bare blocks often show output. Without a fence it is the whole text.
    """
    text = _THOUGHT.sub("", text[:MAX_CHARACTERS])
    if thought_end := _THOUGHT_END.search(text):  # chat templates may open the thinking in the prompt
        text = text[thought_end.end() :]
    text = _END.split(text, maxsplit=1)[0]
    if single := _ONE_LINE.fullmatch(text.strip()):
        first, _, rest = single[1].partition(" ")
        return (rest if first.lower() in (*fences, *_UNMARKED) else single[1]).strip()
    blocks = [(" ".join(block["mark"].lower().split()[:1]), block["code"]) for block in _BLOCK.finditer(text)]
    marked = [code for mark, code in blocks if mark in fences]
    bare = [code for mark, code in blocks if mark in _UNMARKED]
    return (marked or bare or [text])[-1].strip()
