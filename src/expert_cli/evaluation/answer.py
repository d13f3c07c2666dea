"""Let a model answer cases, with examples before them where they are asked for; answers are kept as they are made."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.rows import Example
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import CaseAnswer, EvalCase
from expert_cli.evaluation.verifiers.case import Case, plain
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.inference.expert_config import GenerationConfig, Grammar, Stop
from expert_cli.utils.reporter import Reporter

if TYPE_CHECKING:
    from expert_cli.inference.expert import PromptRenderer
    from expert_cli.inference.generate import Completion
    from expert_cli.inference.grammar import Held


class Generations(NamedTuple):
    """The answer to each case, with its samples if there are any, and how they came about, as the document says it.

    told: under "generation". grammar: what held them: type, held, free, which name no schema to hold them to; None for nothing.
    """

    answers: tuple[CaseAnswer, ...]
    told: Mapping[str, Any]
    grammar: Mapping[str, Any] | None

    @classmethod
    def of(
        cls, settings: GenerationConfig, answers: Iterable[CaseAnswer], free: int, *, seconds: float, **told: Any
    ) -> Generations:
        """Return answers that took so long. told: figures, and what they were computed by: device and threads, or a server.

        On another device sums are rounded otherwise, so that two tokens that are almost as likely can change places.
        """
        told |= {"seconds": seconds, "tokens_per_s": told["tokens"] / max(1e-9, seconds)}
        all_, kind = tuple(answers), settings.grammar
        grammar = {"type": kind.type, "held": len(all_) - free, "free": free} if kind else None
        return cls(all_, settings.as_json() | told, grammar)


class KeptAnswers:
    """A file of JSON lines: what is asked, then an answer a line. Of another evaluation, or not whole, it begins anew."""

    def __init__(self, file: Path, asked: Mapping[str, Any]) -> None:
        """Read what an earlier start left. asked: what two equal evaluations have in common."""
        head = json.dumps(asked, sort_keys=True) + "\n"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
        whole = [line for line in lines if line.endswith("\n")]  # the last line may not have been written whole
        self._file, self._unwritten = file, whole if whole[:1] == [head] else [head]
        self._known = [json.loads(line) for line in self._unwritten[1:]]

    def of(self, title: str) -> dict[str, list[Any]]:
        """Return the answers of a pass over the cases, by the cases' digests, each as a list."""
        return {case: answers for of, case, answers in self._known if of == title}

    def add(self, title: str, made: Mapping[str, Sequence[Any]]) -> None:
        """Keep the answers of a batch, all of them or none."""
        lines = [json.dumps([title, case, answers]) + "\n" for case, answers in made.items()]
        with self._file.open("w" if self._unwritten else "a", encoding="utf-8", newline="\n") as file:
            file.writelines([*self._unwritten, *lines])
        self._unwritten = []


@dataclass(frozen=True)
class Shots:
    """Training rows in an order that the seed draws, the first `count` of which stand before a question."""

    count: int = 0
    rows: tuple[Example, ...] = ()

    def before(self, asked: EvalCase) -> list[Example]:
        """Return the examples for a case: the same for all, but for one that is the case's own row.

        Raises InputError where there are too few.
        """
        below, prompt, is_right = plain(asked.asked.input), plain(asked.prompt), asked.case.is_expected

        def is_own(row: Example) -> bool:
            # it asks the same, or gives the right answer to the same input in other words
            is_same = plain(row.prompt) == prompt or (bool(below) and is_right(row.answer))
            return is_same and plain(row.input) == below

        found = list(islice((row for row in self.rows if not is_own(row)), self.count))
        if len(found) < self.count:
            told = f"--shots {self.count}: {len(found)} training rows are not the row of case {asked.id!r}"
            raise InputError(told, "ask for fewer")
        return found


NO_SHOTS = Shots()


def drawn_shots(trained: TrainedAdapter, count: int, report: Reporter) -> Shots:
    """Return `count` of the rows that an adapter was trained on, and others to stand in for a case's own row.

    Raises InputError where the rows are gone, or are whole texts, which nothing parts into question and answer.
    """
    from expert_cli.data.select import select_rows
    from expert_cli.data.sources import locate_data

    data, rows_of = replace(trained.plan.run.data.as_asked, validation=()), trained.origin.rows
    if rows_of is not None:  # --dataset, --validation and --seed may have said other than the manifest
        sources, share, seed = rows_of
        data = replace(data, train=sources, validation_share=share, seed=seed)
    try:
        rows = list(select_rows(data, locate_data(data, report), report).rows())
    except (InputError, EnvironmentProblem) as error:
        told = f"--shots: the rows of training cannot be read: {error.message}"
        raise InputError(told, "put them there, or leave --shots out") from error
    if any(row.is_whole_text for row in rows):
        raise InputError("--shots: rows of whole texts hold no questions with answers", "leave --shots out")
    order = random.Random(trained.plan.run.seed).sample(range(len(rows)), len(rows))  # noqa: S311
    return Shots(count, tuple(filter(None, (rows[number].example() for number in order))))


def held_for(turn: str, case: Case | None, grammar: Grammar | None) -> Held | None:
    """Return what holds the answer to a turn's text, by the case's own JSON Schema where it has one; None for free text."""
    if grammar is None:
        return None
    from expert_cli.inference.grammar import grammar_for  # the light side does without torch

    held = grammar_for(grammar, turn, getattr(case, "json_schema", None))
    if held and isinstance(case, QueryCase) and case.language == "postgresql":
        return replace(held, fault=case.compile_fault)
    return held


def longest_right_answer(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> int:
    """Return how many tokens the longest right answer to a case has; of programs, which have tests alone, 0."""
    return max((renderer.tokens(case.case.expected_text) for case in cases), default=0)


def write_answers(
    model: Any,
    renderer: PromptRenderer,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    report: Reporter,
    title: str,
    shots: Shots = NO_SHOTS,
    kept: KeptAnswers | None = None,
) -> Generations:
    """Let the model answer every case, in the words and with the control tokens of the renderer.

    shots: what comes before. kept: has the answers of an earlier start, and keeps those that are made.
    """
    import torch

    from expert_cli.inference.generate import Completion, Request, generate

    turns = [renderer.format_user_turn(*case.asked) for case in cases]
    held = [held_for(turn, case.case, settings.grammar) for turn, case in zip(turns, cases, strict=True)]
    before = kept.of(title) if kept else {}
    known = {case: [Completion(tuple(ids), stop) for ids, stop in some] for case, some in before.items()}
    left = [n for n, case in enumerate(cases) if case.digest not in known]
    count = settings.samples or 1
    requests = [Request(_prompt(renderer, cases[n], shots), held[n], seed_of(settings, cases[n]), count) for n in left]
    if known:
        report.info(f"{len(cases) - len(left)} of {len(cases)} cases were answered before this was stopped")
    longest = max((len(one.prompt) for one in requests), default=0) + settings.max_new_tokens
    room = getattr(model.config, "max_position_embeddings", None)
    if room and longest > room:
        report.warning(
            f"the longest prompt and answer may take {longest:,} tokens, the base model was made for {room:,}"
        )
    started = time.monotonic()
    with report.progress(title, len(left) * count, "answers") as bar:

        def on_step(done: int, tokens: int) -> None:
            bar.update(done, f"{tokens / max(1e-9, time.monotonic() - started):,.0f} tokens/s")

        def on_batch(made: Mapping[int, list[Completion]]) -> None:
            of_cases = {cases[left[n]].digest: some for n, some in made.items()}
            known.update(of_cases)
            if kept:
                kept.add(title, {case: [(one.ids, one.stop) for one in some] for case, some in of_cases.items()})

        generate(model, requests, settings, renderer, on_step, on_batch)
    every = [one for case in cases for one in known[case.digest]]
    stops, computed = (
        Counter(one.stop for one in every),
        {"device": model.device.type, "threads": torch.get_num_threads()},
    )
    told = {"tokens": sum(len(one.ids) for one in every), "cut_off": stops["length"], "looping": stops["looping"]}
    written = {case: [(renderer.decode(one.ids), one.stop) for one in some] for case, some in known.items()}
    answers = (answered(case, written[case.digest], settings) for case in cases)
    free = held.count(None) if settings.grammar else 0
    return Generations.of(settings, answers, free, seconds=time.monotonic() - started, **told, **computed)


def seed_of(settings: GenerationConfig, case: EvalCase) -> int:
    """Return what a case gives to the seed of its batch."""
    return int.from_bytes(hashlib.sha256(f"{settings.seed} {case.digest}".encode()).digest()[:7], "big")


def answered(case: EvalCase, written: Sequence[tuple[str, Stop]], settings: GenerationConfig) -> CaseAnswer:
    """Return a case with the texts that were written for it, up to the first stop sequence, and why each ends."""
    answers = []
    for text, stop in written:
        cut = settings.until_stop(text)
        answers.append(case.answered(cut, *((stop, "") if cut == text else ("sequence", text))))
    return replace(answers[0], samples=tuple(answers)) if settings.samples else answers[0]


def _prompt(renderer: PromptRenderer, case: EvalCase, shots: Shots) -> list[int]:
    turns = []
    for example in shots.before(case):
        turns.append({"role": "user", "content": renderer.format_user_turn(example.prompt, example.input)})
        turns.append({"role": "assistant", "content": example.answer})
    return renderer.encode_messages([*turns, {"role": "user", "content": renderer.format_user_turn(*case.asked)}])
