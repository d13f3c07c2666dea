"""Conversations through the chat templates of model families: are text, ids and masks those of transformers?

    python -m benchmarks.compare_templates [--conversations 2000] [--llama-cpp ARCHIVE] [FAMILY ...]

ARCHIVE: the source of llama-cpp-python, `pip download --no-deps --no-binary llama-cpp-python llama-cpp-python`, which brings
templates of families that TRL has not; these are left out without it. Hypothesis draws the same conversations each time: system
messages, tools, calls one or two at once, results, reasoning, weights, control tokens in what is said. The first differences of
each kind are shown on stderr.

A row of the table says of a family how many were drawn; how many of those that became a document are `apply_chat_template`'s
text, and its ids with `sanitize_control_tokens=True`; how many masks are those of two other ways to find the answers: each
prefix of the conversation rendered, where it is one of the whole; TRL's template with `{% generation %}`, where it writes the
same, without what the generation prompt holds. Then how many were refused, and how many of these the template shows whole. The
tokenizers are of bytes and a few merges, made in the process, with each family's control tokens.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template

from benchmarks.lib.conversations import FAMILIES, Family, control_tokens, conversations
from expert_cli._compat import unmarked
from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import BadRow, choose_columns
from expert_cli.data.encode import Encoder
from expert_cli.data.rows import to_row
from expert_cli.data.templates.make_template import DATE, make_template
from expert_cli.data.templates.mask import Rendered
from tests.tiny import tiny_backend

Span = tuple[int, int]
COMPARED = ("text equal", "ids equal", "mask = prefixes", "mask = generation", "one document an answer")
REFUSED = "refused"
HEADS = ("family", "drawn", "compared", *COMPARED, REFUSED, "of these expressible")


class Comparison:
    """One family's template, ours and transformers', and how many comparisons of each kind there were, and were good."""

    def __init__(self, family: Family, jinja: str) -> None:
        self.family, self.jinja = family, jinja
        backend = Tokenizer.from_str(tiny_backend().to_str())
        backend.add_special_tokens(
            [AddedToken(t, special=True, normalized=False) for t in control_tokens(family, jinja)]
        )
        self.hf = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=family.eos, bos_token=family.bos or None)
        self.ours = make_template("", self.hf, eos_token=family.eos, given=jinja)
        self.encoder = Encoder(self.ours)
        self.drawn = 0
        self.good, self.all = Counter[str](), Counter[str]()

    def note(self, what: str, good: bool, row: dict[str, Any], shown: object) -> None:
        """Count one comparison, and show the first that are not good."""
        self.all[what] += 1
        self.good[what] += good
        if not good and self.all[what] - self.good[what] <= 3:
            told = json.dumps(row, ensure_ascii=False)
            print(f"{self.family.name}, {what}: {told}\n    {shown}", file=sys.stderr)

    def rendered(
        self, row: dict[str, Any], count: int | None = None, *, generate: bool = False, jinja: str | None = None
    ) -> str:
        """Return the first turns as transformers writes them."""
        return str(
            self.hf.apply_chat_template(
                turns_of(row)[:count],
                tools=row.get("tools"),
                chat_template=jinja or self.jinja,
                tokenize=False,
                add_generation_prompt=generate,
                enable_thinking=False,
            )
        )

    def compare(self, row: dict[str, Any]) -> None:
        """Compare one conversation."""
        self.drawn += 1
        try:
            read = to_row(row, choose_columns(list(row), ColumnMapping(), "drawn"), ColumnMapping(), "drawn")
        except BadRow:
            return
        (documents,) = self.ours.documents([read])
        if isinstance(documents, str):
            try:
                shown = not self.lost(row, self.rendered(row))
            except Exception:  # noqa: BLE001  a template raises anything
                shown = False
            self.note(REFUSED, not shown, row, documents)
            return
        if len(documents) == 1:
            (document,), whole = documents, self.rendered(row)
            text = text_of(document)
            end = len(text) if whole.startswith(text) else len(text) - len(self.ours.end_token)
            same = whole[:end] == text[:end] and not whole[end:].replace(self.family.eos, "").strip()
            if same or len(answers_of(row)) == 1:
                self.note("text equal", same, row, f"{whole!r}\n    {text!r}")
                if same:
                    self.compare_ids(row, document)
                    self.compare_masks(row, document, whole)
                return
        self.compare_split(row, documents)

    def compare_split(self, row: dict[str, Any], documents: list[Rendered]) -> None:
        """Compare each document with what is asked and answered where its answer is the last."""
        numbers = [number for number, is_trained in answers_of(row).items() if is_trained]
        good = len(numbers) == len(documents)
        for number, document in zip(numbers, documents, strict=False):
            answered, text = self.rendered({**row, "messages": row["messages"][: number + 1]}), text_of(document)
            trained, asked = trained_of(document, len(text)), self.asked(row, number, answered)
            start = min(trained, default=0) if asked is None else asked
            good = good and answered.startswith(text.removesuffix(self.ours.end_token))
            good = good and trained == {*range(start, len(text))}
        self.note("one document an answer", good, row, str(documents))

    def compare_ids(self, row: dict[str, Any], document: Rendered) -> None:
        """Compare the ids with transformers' own, control tokens in what the row says being text."""
        encoded = (
            self.encoder.encode([document]).ids.tolist()
            or self.encoder.encode([[(t, True) for t, _ in document]]).ids.tolist()
        )
        encoding: Any = self.hf.apply_chat_template(
            turns_of(row),
            tools=row.get("tools"),
            chat_template=self.jinja,
            enable_thinking=False,
            sanitize_control_tokens=True,
        )
        expected = encoding["input_ids"]
        same = encoded[: len(expected)] == expected[: len(encoded)]
        self.note("ids equal", same, row, f"{encoded}\n    {expected}")

    def compare_masks(self, row: dict[str, Any], document: Rendered, whole: str) -> None:
        """Compare the trained characters with those of other ways to find them."""
        ours, answers = trained_of(document, len(whole)), answers_of(row)
        asked = [self.asked(row, number, whole) for number in answers]

        def note(what: str, found: list[Span]) -> None:
            kept = [span for span, is_trained in zip(found, answers.values(), strict=True) if is_trained]
            expected = {at for span in kept for at in range(*span)}
            self.note(what, expected == ours, row, f"{sorted(expected ^ ours)} of {whole!r}")

        prefixes = [self.by_prefix(row, number, start, whole) for number, start in zip(answers, asked, strict=True)]
        found = [span for span in prefixes if span]
        if len(found) == len(answers):
            note("mask = prefixes", found)
        spans = self.by_generation(row, whole)
        if len(spans) == len(answers) and not (self.family.headed and None in asked):
            spans = [(max(a, at or 0), self.ended(a, b, whole)) for (a, b), at in zip(spans, asked, strict=True)]
            note("mask = generation", spans)

    def by_generation(self, row: dict[str, Any], whole: str) -> list[Span]:
        """Where answers stand by TRL's template with `{% generation %}`; nowhere if there is none, or it writes otherwise."""
        marked = self.family.marked()
        if not marked:
            return []
        rendered: Any = render_jinja_template(
            [turns_of(row)],
            tools=row.get("tools"),
            chat_template=marked,
            return_assistant_tokens_mask=True,
            enable_thinking=False,
            bos_token=self.family.bos,
            eos_token=self.family.eos,
        )
        (text,), (found,) = rendered
        return [(int(start), int(stop)) for start, stop in found] if text == whole else []

    def asked(self, row: dict[str, Any], number: int, whole: str) -> int | None:
        """Where the generation prompt of an answer ends, None if the conversation does not begin with it."""
        prompt = self.rendered(row, number, generate=True, jinja=self.ours.jinja)
        return len(prompt) if whole.startswith(prompt) else None

    def by_prefix(self, row: dict[str, Any], number: int, start: int | None, whole: str) -> Span | None:
        """Where an answer stands by what is written for the turns before it and up to it."""
        upto = self.rendered(row, number + 1)
        if start is None or not whole.startswith(upto.rstrip()):
            return None
        return start, self.ended(start, len(upto), whole)

    def ended(self, start: int, stop: int, whole: str) -> int:
        """Where an answer ends: without line feeds behind its end token, with the next role's marker where there is none."""
        if self.family.next_role:
            return stop + next((len(token) for token in self.family.next_role if whole.startswith(token, stop)), 0)
        said = whole[start:stop].rstrip()
        if self.family.turn_end:  # the end of all stands behind it
            said = said.removesuffix(self.family.eos).rstrip()
        return start + len(said)

    def lost(self, row: dict[str, Any], text: str) -> bool:
        """Whether something that the row says is not in its rendering, or is written as if it were not there."""
        if row.get("tools") and self.rendered({**row, "tools": None}) == text:
            return True
        single = [
            {**turn, **({"tool_calls": turn["tool_calls"][:1]} if turn.get("tool_calls") else {})}
            for turn in row["messages"]
        ]
        if single != row["messages"] and self.rendered({**row, "messages": single}) == text:
            return True
        said = [turn["content"] for turn in row["messages"]]
        said += [str(tool["function"]["name"]) for tool in row.get("tools", [])]
        calls = [call["function"] for turn in row["messages"] for call in turn.get("tool_calls", [])]
        said += [call["name"] for call in calls] + [
            name for call in calls if not self.family.spelled for name in call["arguments"]
        ]
        said.append(row["messages"][-1].get("reasoning_content", ""))
        for part, times in Counter(part.strip() for part in said).items():
            spellings = {part, json.dumps(part, ensure_ascii=False)[1:-1]}
            if sum(map(text.count, spellings)) < times:  # another's words may be the same
                return True
        return False


def turns_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns as transformers is given them."""
    return [{name: value for name, value in turn.items() if name != "weight"} for turn in row["messages"]]


def text_of(document: Rendered) -> str:
    """Return the text of a document, without the marks of control tokens that rows say."""
    return unmarked("".join(text for text, _ in document))


def answers_of(row: dict[str, Any]) -> dict[int, bool]:
    """Return the numbers of the turns that answer, and whether each is trained."""
    turns = enumerate(row["messages"])
    return {number: turn.get("weight", 1) != 0 for number, turn in turns if turn["role"] == "assistant"}


def trained_of(document: Rendered, most: int) -> set[int]:
    """Return where the trained characters of a document stand, without an end token that the text does not have."""
    trained = [is_trained for text, is_trained in document for _ in unmarked(text)]
    return {at for at, is_trained in enumerate(trained[:most]) if is_trained}


class _Then(dt.datetime):
    """A clock that stands where the templates of runs have it."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> _Then:
        return cls(DATE.year, DATE.month, DATE.day, tzinfo=tz)


def compared(family: Family, jinja: str, count: int) -> Comparison:
    """Compare so many conversations of a family, drawn alike each time."""
    comparison = Comparison(family, jinja)

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(conversations(spelled=family.spelled))
    def compare(row: dict[str, Any]) -> None:
        comparison.compare(row)

    with mock.patch.object(chat_template_utils, "datetime", _Then):
        compare()
    return comparison


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="all where none is named")
    parser.add_argument("--conversations", type=int, default=2000)
    parser.add_argument("--llama-cpp", type=Path)
    options = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    for family in FAMILIES:
        jinja = family.jinja(options.llama_cpp)
        if not jinja or (options.families and family.name not in options.families):
            continue
        done = compared(family, jinja, options.conversations)
        shares = (f"{done.good[what]:,} of {done.all[what]:,}" if done.all[what] else "" for what in COMPARED)
        refused = (done.all[REFUSED], done.all[REFUSED] - done.good[REFUSED])
        cells = (
            family.name,
            f"{done.drawn:,}",
            f"{done.all[COMPARED[0]]:,}",
            *shares,
            *(f"{one:,}" for one in refused),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
