"""Answers drawn to the prompts of a round and judged, in blocks that each lie on disk once they are whole.

A block-0001.jsonl is a line of figures with a hash of the lines that follow, one a prompt. What an answer is drawn by is a
function of its prompt, the round and its number, so that a block that is drawn again says the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from expert_cli.config.adapter_origin import WEIGHTS, find_adapter
from expert_cli.errors import IntegrityError
from expert_cli.evaluation.answer import Generations, write_answers
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S, answer_settings, room_for_answers
from expert_cli.evaluation.grade import grade
from expert_cli.inference.expert import Expert, open_expert
from expert_cli.inference.expert_config import NEW_TOKENS, decoding_of
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.pipeline.rft.work import Work, free_memory
from expert_cli.utils.distributed import broadcast_rank0, gather_rank0
from expert_cli.utils.files import parse_json, sha256_of, write_bytes
from expert_cli.utils.json_lines import json_lines
from expert_cli.utils.reporter import Bar, NullReporter

RIGHT = "correct"
BLOCK = 32
"""Prompts a block: what a kill costs, and enough answers at once for a device."""


class Sample(NamedTuple):
    """An answer that was drawn: its text, the verdict on it, why it ended."""

    answer: str
    kind: str
    stop: str

    @property
    def is_right(self) -> bool:
        """Whether it is right."""
        return self.kind == RIGHT


@dataclass(frozen=True)
class Drawn:
    """A prompt with the answers that were drawn to it, and the verdict on the expected one, where there is one."""

    prompt: EvalCase
    samples: tuple[Sample, ...]
    expected: str = RIGHT


@dataclass(frozen=True)
class Sampled:
    """What was drawn in a round. tokens, seconds: of writing the answers."""

    drawn: tuple[Drawn, ...]
    tokens: int
    seconds: float


@dataclass(frozen=True)
class _Block:
    """Some prompts, the file of their answers, a hash of all that decides what is drawn, and one of what judges it."""

    prompts: Sequence[EvalCase]
    file: Path
    key: str
    judged_on: str = ""


def sample(work: Work, prompts: Sequence[EvalCase], number: int, adapter: Path) -> Sampled:
    """Draw answers to the prompts of a round; a block that is there and whole is not drawn anew.

    Each process of a job draws blocks of its own, the first one judges and keeps them; it alone returns them, the others
    nothing. Raises what loading and judging raise; IntegrityError: a block is not as it was written.
    """
    blocks = _blocks(work, prompts, number, adapter)
    missing = broadcast_rank0(lambda: [index for index, block in enumerate(blocks) if _read(block) is None])
    if missing:
        _draw(work, blocks, missing, number, adapter)
        free_memory(work.run)
    read = [_whole(block) for block in blocks if work.job.is_main_process]
    drawn = tuple(one for found in read for one in found.drawn)
    return Sampled(drawn, sum(found.tokens for found in read), sum(found.seconds for found in read))


def sampling_settings(work: Work, number: int, most: int) -> GenerationConfig:
    """Return how the answers of a round are drawn, each of `most` tokens at most."""
    settings = answer_settings(work.plan, decoding_of(work.plan.loaded.manifest), most, samples=work.settings.samples)
    seed = int.from_bytes(hashlib.sha256(f"{work.run.seed} {number}".encode()).digest()[:4], "big")
    return replace(settings, temperature=work.settings.temperature, seed=seed)


def _blocks(work: Work, prompts: Sequence[EvalCase], number: int, adapter: Path) -> list[_Block]:
    weights = sha256_of(find_adapter(adapter).adapter / WEIGHTS)
    settings = sampling_settings(work, number, NEW_TOKENS)
    how: dict[str, Any] = {"adapter": weights, "settings": settings.as_json(), "grammar": settings.grammar}
    how["prompts"] = [one.digest for one in prompts]
    found = []
    for index, start in enumerate(range(0, len(prompts), BLOCK), start=1):
        text = json.dumps({**how, "block": index}, sort_keys=True, default=vars)
        key = hashlib.sha256(text.encode()).hexdigest()
        mine = prompts[start : start + BLOCK]
        found.append(_Block(mine, work.paths(number).block(index), key, work.judged_on(mine)))
    return found


def _draw(work: Work, blocks: Sequence[_Block], missing: Sequence[int], number: int, adapter: Path) -> None:
    """Draw and judge the blocks that are missing, in turns: one a process."""
    expert = open_expert(work.run, find_adapter(adapter), work.report)
    most = room_for_answers(expert.renderer, [one for block in blocks for one in block.prompts])
    settings = sampling_settings(work, number, most)
    job, tries = work.job, work.settings.samples
    asked = right = 0
    total = sum(len(blocks[index].prompts) for index in missing) * tries
    with work.report.progress(f"round {number}, sampling", total, "answers") as bar:
        for start in range(0, len(missing), job.num_processes):
            turn = missing[start : start + job.num_processes]
            mine = turn[job.process_index : job.process_index + 1]
            report = _Within(bar, asked, right)
            written = _written(expert, [blocks[index] for index in mine], settings, report)
            for index, found in zip(turn, gather_rank0(written), strict=False):
                if found is not None:
                    passed = _judge(blocks[index], found)
                    asked, right = asked + passed[0], right + passed[1]
            work.options.written()
            work.look_for_stop()


def _written(expert: Expert, mine: Sequence[_Block], settings: GenerationConfig, report: _Within) -> Generations | None:
    if not mine:
        return None
    return write_answers(expert.model, expert.renderer, mine[0].prompts, settings, report, "")


def _judge(block: _Block, written: Generations) -> tuple[int, int]:
    """Run the answers of a block and keep it; return how many there are, and how many are right."""
    rows = [one for row in written.answers for one in row.samples]
    expected = {one.id: one.answered(text) for one in block.prompts for text in one.case.right_answers()[:1]}
    graded = grade([*rows, *expected.values()], NullReporter(), CASE_TIMEOUT_S).answers
    verdicts = iter(one.verdict.kind for one in graded)
    lines: dict[str, dict[str, Any]] = {}
    for row in written.answers:
        samples = [{"answer": one.answer, "kind": next(verdicts), "stop": one.stop} for one in row.samples]
        lines[row.id] = {"id": row.id, "prompt": row.digest, "samples": samples}
    for name in expected:
        lines[name]["expected"] = next(verdicts)
    _write(block, [*lines.values()], written)
    kinds = [one["kind"] for line in lines.values() for one in line["samples"]]
    return len(kinds), kinds.count(RIGHT)


def _write(block: _Block, lines: Sequence[Mapping[str, Any]], written: Generations) -> None:
    body = json_lines(lines)
    figures = written.as_json()
    head = {"key": block.key, "sha256": hashlib.sha256(body).hexdigest(), "judged_on": block.judged_on}
    head |= {name: figures[name] for name in ("tokens", "seconds", "cut_off", "looping", "device", "threads")}
    write_bytes(block.file, json.dumps(head).encode() + b"\n" + body)


def _whole(block: _Block) -> Sampled:
    found = _read(block)
    if found is None:
        told = "is not as it was written just now"
        raise IntegrityError(f"{block.file} {told}", "See that no other program writes there; then --resume auto.")
    return found


def _read(block: _Block) -> Sampled | None:
    """Return what a block's file holds; None where it is not there, not whole, or of other prompts, settings or adapter."""
    try:
        first, _, body = block.file.read_bytes().partition(b"\n")
        head = parse_json(first)
        if (head["key"], head["sha256"]) != (block.key, hashlib.sha256(body).hexdigest()):
            return None
        if head["judged_on"] != block.judged_on:
            return None
        lines = [parse_json(line) for line in body.splitlines()]
        drawn = [
            Drawn(
                prompt,
                tuple(Sample(one["answer"], one["kind"], one["stop"]) for one in line["samples"]),
                line.get("expected", RIGHT),
            )
            for prompt, line in zip(block.prompts, lines, strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Sampled(tuple(drawn), head["tokens"], head["seconds"])


class _Within(NullReporter):
    """Moves the bar of a round by what one block comes to, and says how many answers before it were right."""

    def __init__(self, bar: Bar, asked: int, right: int) -> None:
        self.bar, self.asked, self.right = bar, asked, right

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Bar]:  # noqa: ARG002
        """Yield what moves the round's bar."""
        yield self

    def update(self, done: float, note: str = "") -> None:
        """Show how far the round is."""
        told = f"{self.right:,}/{self.asked:,} right, " if self.asked else ""
        self.bar.update(self.asked + done, told + note)
