"""Hold answers of two versions of the code against each other, token by token, and show every difference as what it is.

    expert-cli evaluate --adapter RUN --cases FILE --output BEFORE.json     (in the tree of before)
    expert-cli evaluate --adapter RUN --cases FILE --output NOW.json        (in this one)
    python -m benchmarks.same_answers --adapter RUN BEFORE.json NOW.json [BEFORE.json NOW.json ...]

Both are greedy answers of one adapter to the same cases. An answer that is ended now where it loops, or at a stop sequence, is
counted by itself: it must be how the earlier one begins. Of every other difference the first token that differs is shown, with
the scores of both tokens after the same text, once computed in fp32 and once in bf16, a prompt by itself: where those of bf16
are no further apart than its rounding, another order of adding up decides which token comes. Exit code 1 for one that is no
such tie.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.plan import trained_adapter
from expert_cli.inference.expert import open_expert
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.utils.reporter import NullReporter

STEPS = 4
"""Scores that are so many steps of bf16 apart are a tie: each of 30 layers rounds."""
BF16_BITS = 8
ENDED_EARLY = ("looping", "sequence")
Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """Where two answers part. tokens: the one of before and the one of now, after `prefix`, the ids that both have.

    question: as the model is asked, with what it is shown of a database in the place of the input.
    """

    id: str
    question: Row
    prefix: tuple[int, ...]
    tokens: tuple[int, int]


def compared(before: Row, now: Row, renderer: PromptRenderer) -> Iterator[tuple[str, Difference | None]]:
    """Yield of every answer what became of it, and where it differs. Raises ValueError for other cases or questions."""
    old = {row["id"]: row for row in before["answers"]}
    if old.keys() != {row["id"] for row in now["answers"]}:
        raise ValueError("the two hold answers to other cases")
    for row in now["answers"]:
        first = old[row["id"]]
        if first["prompt"] != row["prompt"]:
            raise ValueError(f"case {row['id']} asks something else")
        yield _became(first, row, renderer)


def _became(first: Row, row: Row, renderer: PromptRenderer) -> tuple[str, Difference | None]:
    if row["stop"] in ENDED_EARLY:
        begins = first["answer"].startswith(row["answer"])
        return (
            (f"ended early ({row['stop']}), the same up to there", None)
            if begins
            else _difference(first, row, renderer)
        )
    if (first["answer"], first["stop"]) == (row["answer"], row["stop"]):
        return "the same", None
    return _difference(first, row, renderer)


def _difference(first: Row, row: Row, renderer: PromptRenderer) -> tuple[str, Difference | None]:
    ids = [_ids(one, renderer) for one in (first, row)]
    same = next((n for n, pair in enumerate(zip(*ids, strict=False)) if pair[0] != pair[1]), min(map(len, ids)))
    if same == min(map(len, ids)):  # one was cut off at its longest length
        return "the same up to the shorter one's length", None
    asked = row["question"] | ({"input": row["schema_prompt"]} if row.get("schema_prompt") else {})
    return "another token", Difference(row["id"], asked, tuple(ids[0][:same]), (ids[0][same], ids[1][same]))


def _ids(row: Row, renderer: PromptRenderer) -> list[int]:
    """Return an answer's tokens, its end token as well where it came to that."""
    ids = list(renderer.tokenizer.backend.encode(row["answer"], add_special_tokens=False).ids)
    return [*ids, min(renderer.stop_token_ids)] if row["stop"] == "end" else ids


def scores(model: Any, renderer: PromptRenderer, one: Difference) -> tuple[float, float]:
    """Return what the model gives the token of before and that of now."""
    import torch

    turn = {"role": "user", "content": renderer.template.user_turn(one.question["prompt"], one.question["input"])}
    ids = [*renderer.encode_messages([turn]), *one.prefix]
    with torch.no_grad():
        last = model(input_ids=torch.tensor([ids], device=model.device)).logits[0, -1].float()
    ends = list(renderer.stop_token_ids)
    old, new = (float(last[ends].max() if token in ends else last[token]) for token in one.tokens)
    return old, new


def is_tie(old: float, new: float) -> bool:
    """Whether two scores in bf16 are so near that rounding decides between them."""
    largest = max(abs(old), abs(new), 2.0**-100)
    return abs(old - new) <= STEPS * 2.0 ** (math.floor(math.log2(largest)) + 1 - BF16_BITS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print counts and differences; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="+", help="BEFORE.json NOW.json, in pairs")
    parser.add_argument("--adapter", type=Path, required=True, help="the run that wrote both")
    parser.add_argument("--manifest", type=Path, help="where that of the run is gone")
    options = parser.parse_args(arguments)
    if len(options.documents) % 2:
        parser.error("documents come in pairs")
    trained = trained_adapter(options.adapter, options.manifest, None, offline=True)
    run = trained.plan.run
    experts = {
        dtype: open_expert(replace(run, compute=replace(run.compute, dtype=dtype)), trained.origin, NullReporter())
        for dtype in ("bf16", "fp32")
    }
    renderer = experts["bf16"].renderer
    counts, failed = Counter[str](), False
    for old, new in zip(options.documents[::2], options.documents[1::2], strict=True):
        before, now = (json.loads(path.read_text(encoding="utf-8")) for path in (old, new))
        for what, one in compared(before, now, renderer):
            tie = None
            if one is not None:
                pairs = {dtype: scores(expert.model, renderer, one) for dtype, expert in experts.items()}
                tie = is_tie(*pairs["bf16"])
                failed |= not tie
                words = [repr(renderer.decode([token])) for token in one.tokens]
                told = ", ".join(f"{dtype} {first:.4f} and {second:.4f}" for dtype, (first, second) in pairs.items())
                where = f"{new.name} {one.id}, token {len(one.prefix) + 1}"
                print(f"{where}: {words[0]} then, {words[1]} now: {told}: {'a tie' if tie else 'NO TIE'}")
            counts[what + {None: "", True: ", a tie", False: ", no tie"}[tie]] += 1
    for what, count in counts.most_common():
        print(f"{count:6,}  {what}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
