"""Evaluates an adapter, and optionally its base model: lets them answer the cases, and grades answers, also saved ones.

The base model is the same model with the adapter disabled. It is used as is usual without an adapter: with its own chat
template, without a grammar, once without examples and once with a few training rows as examples.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain, cycle, islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from expert_cli.config.adapter_origin import WEIGHTS
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.data.rows import Row, asked_hash, beside_content
from expert_cli.errors import InputError
from expert_cli.evaluation import cases as case_files
from expert_cli.evaluation.cases import Answer, Cases, EvalCase, read_cases, spread
from expert_cli.evaluation.grade import NOTHING, Evaluation, Permissions, grade
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.inference.expert_config import GenerationConfig, Grammar
from expert_cli.runs.metrics import WITHOUT_GRAMMAR, base_title, items, number, part, read_json
from expert_cli.utils.files import append_text, sha256_of
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import shortened

if TYPE_CHECKING:
    from expert_cli.inference.grammar import Held
    from expert_cli.inference.prompts import PromptRenderer

NEW_TOKENS_OF_BASE = 512
"""max_new_tokens of a base model: at least this, and at least twice the longest right answer."""
DUMMY = "x"
"""An answer that is wrong for every case."""


class Answering:
    """One pass over the cases. Answers are appended to a file as they are made, so that an interrupted pass can continue.

    settings: how answers are generated; left: the cases without an answer yet.
    """

    def __init__(
        self, of: str, cases: Cases, how: GenerationConfig, report: Reporter, keep: Path | None = None, asked: Any = ()
    ) -> None:
        """Read earlier answers of this pass from the file `keep`. of: title; asked: more values that identify the pass."""
        self.title, self.settings, self.report, self._cases, self._keep = of, how, report, cases, keep
        self._pass = case_files.digest_of({of: [asked, asdict(how), [one.asked for one in cases]]})
        self._made = dict[str, tuple[tuple[Answer, ...], float]]()  # with the seconds since the answer before
        self._added, self._last, self._lock = 0, time.monotonic(), Lock()
        for line in keep.read_text(encoding="utf-8").splitlines() if keep and keep.is_file() else ():
            with suppress(ValueError, TypeError):  # the last line may be incomplete
                of, case, answers, seconds = json.loads(line)
                self._made |= {case: (tuple(Answer(*one) for one in answers), seconds)} if of == self._pass else {}
        self.left = [case for case in cases if case.digest not in self._made]
        if self._made:
            report.info(f"{len(cases) - len(self.left)} of {len(cases)} cases are answered already")

    def add(self, case: EvalCase, answers: Iterable[Answer]) -> int:
        """Add the answers to a case, cut at the first stop sequence. Return how many cases of `left` were added."""
        cut = [(self.settings.until_stop(one.text), one) for one in answers]
        made = [one if text == one.text else one._replace(text=text, stop="sequence") for text, one in cut]
        with self._lock:
            before, self._last, self._added = self._last, time.monotonic(), self._added + 1
            self._made[case.digest] = tuple(made), self._last - before
            if self._keep:
                append_text(self._keep, f"\n{json.dumps([self._pass, case.digest, *self._made[case.digest]])}\n")
            return self._added

    def judged(self, allowed: Permissions, **computed: Any) -> Evaluation:
        """Grade the answers. computed: device or server, which affect rounding."""
        every, took = zip(*(self._made[case.digest] for case in self._cases), strict=True)
        stops, tokens = Counter(one.stop for one in chain(*every)), sum(one.tokens for one in chain(*every))
        told = {"tokens": tokens, "cut_off": stops["length"], "looping": stops["looping"], **computed}
        told |= {"seconds": sum(took), "tokens_per_s": tokens / max(1e-9, sum(took))}
        answered, is_sampled = zip(self._cases, every, strict=True), self.settings.samples > 0
        rows = [replace(case, answers=some, is_sampled=is_sampled) for case, some in answered]
        return grade(rows, self.report, allowed.seconds).telling(generation=self.settings.as_json() | told)


def drawn_shots(trained: TrainedAdapter, count: int, cases: Cases, report: Reporter) -> list[Row]:
    """Return `count` training rows, drawn by the seed, whose questions are in no case. Raises InputError."""
    from expert_cli.data.select import select_rows
    from expert_cli.data.sources import locate_data

    data = replace(trained.plan.run.data.as_asked, validation=())
    rows = list(select_rows(data, locate_data(data, report), report).rows())
    own = {asked_hash(*asked) for case in cases for asked in (case.asked, (case.prompt, case.input))}
    drawn = random.Random(trained.plan.run.seed).sample(rows, len(rows))  # noqa: S311
    found = [*islice((row for row in drawn if _is_example(row) and asked_hash(*row.question) not in own), count)]
    if len(found) < count:
        raise InputError(f"--shots {count}: too few training rows ask what no case asks", "use a smaller number")
    return found


def _is_example(row: Row) -> bool:
    """Whether a row is a single question and answer, so that it can be an example before another question."""
    turns = [turn for turn in row.messages if turn["role"] not in ("system", "developer")]
    return [turn["role"] for turn in turns] == ["user", "assistant"] and not any(map(beside_content, turns))


def held_for(turn: str, case: Case, grammar: Grammar | None) -> Held | None:
    """Return the grammar for the answer to a turn, from the case's own JSON Schema if it has one; None for free text."""
    if grammar is None:
        return None
    from expert_cli.inference.grammar import grammar_for  # imports torch, which judging alone does not need

    held = grammar_for(grammar, turn, getattr(case, "json_schema", None))
    if held and isinstance(case, QueryCase) and case.dialect == "postgresql":
        return replace(held, fault=case.fault)
    return held


def longest_right_answer(renderer: PromptRenderer, cases: Cases) -> int:
    """Return the number of tokens in the longest right answer; 0 for programs, which only have tests."""
    return max((len(renderer.ids(case.case.expected_text)) for case in cases), default=0)


def free(settings: GenerationConfig, longest: int = 0) -> GenerationConfig:
    """Return the settings for the base model: no sampling, no grammar. longest: a lower limit for `max_new_tokens`."""
    tokens = max(settings.max_new_tokens, NEW_TOKENS_OF_BASE, longest)
    return GenerationConfig(tokens, settings.batch_size, seed=settings.seed, num_beams=settings.num_beams)


def write_answers(
    model: Any,
    renderer: PromptRenderer,
    answering: Answering,
    allowed: Permissions = NOTHING,
    shots: Sequence[Row] = (),
) -> Evaluation:
    """Let the model answer the remaining cases, and grade all answers. shots: examples before each question."""
    import torch

    from expert_cli.inference.expert import too_long
    from expert_cli.inference.generate import Request, batches

    cases, settings, report = answering.left, answering.settings, answering.report
    turns = [renderer.template.user_turn(*case.asked) for case in cases]
    held = [held_for(turn, case.case, settings.grammar) for case, turn in zip(cases, turns, strict=True)]
    if settings.grammar and None in held:
        unheld = f"{held.count(None)} of {len(cases)} questions"
        report.warning(f"{unheld} have no schema that can be read: they are answered without a grammar")
    if lacks := [f"{case.where}: {one.lacks}" for case, one in zip(cases, held, strict=True) if one and one.lacks]:
        report.warning(
            f"{len(lacks)} of {len(cases)} answers are generated by a grammar without all of their JSON Schema: {lacks[0]}"
        )
    requests = [
        Request(_prompt(renderer, turn, shots), one, seed_of(settings, case), settings.samples or 1)
        for case, turn, one in zip(cases, turns, held, strict=True)
    ]
    for case, one in sorted(zip(cases, requests, strict=True), key=lambda pair: -len(pair[1].prompt))[:1]:
        if told := too_long(model, len(one.prompt), settings.max_new_tokens):
            report.warning(f"{case.where}: {told}")
    with report.progress(answering.title, len(cases), "cases") as bar:
        for n, some in (one for made in batches(model, requests, settings, renderer) for one in made.items()):
            written = [Answer(renderer.decode(one.ids), one.stop, len(one.ids)) for one in some]
            bar.update(answering.add(cases[n], written))
    return answering.judged(allowed, device=model.device.type, threads=torch.get_num_threads())


def seed_of(settings: GenerationConfig, case: EvalCase) -> int:
    """Return the part of a batch's seed that comes from a case."""
    return int.from_bytes(hashlib.sha256(f"{settings.seed} {case.digest}".encode()).digest()[:7], "big")


def _prompt(renderer: PromptRenderer, turn: str, shots: Sequence[Row]) -> list[int]:
    said = ((renderer.template.user_turn(one.question[0], one.input), one.answer) for one in shots)
    turns = zip(cycle(("user", "assistant")), chain(*said, [turn]), strict=False)
    return renderer.encode_messages([{"role": role, "content": text} for role, text in turns])


def cases_of(plan: Plan, cases: Path | None, limit: int | None = None) -> list[EvalCase]:
    """Return the cases of a file, by default the expert's own. limit: number of cases. Raises InputError if there are none."""
    path = cases or plan.own_cases
    if not path.is_file():
        raise InputError(f"{path}: not a file", "give the cases: --cases FILE (evaluate --help shows one)")
    return case_files.shown_databases(spread(read_cases(path), limit), plan.run.data.schema_prompt)


def drawn_cases(plan: Plan, count: int) -> list[EvalCase]:
    """Return `count` of the expert's own cases, drawn by the run's seed; none if it has none. Raises InputError."""
    cases = cases_of(plan, None) if plan.own_cases.is_file() else []
    return random.Random(plan.run.seed).sample(cases, min(count, len(cases)))  # noqa: S311


def evaluate_adapter(
    trained: TrainedAdapter,
    cases: Cases,
    settings: GenerationConfig,
    report: Reporter,
    allowed: Permissions,
    *,
    shots: int | None = None,
    keep: Path | None = None,
) -> Evaluation:
    """Let an adapter answer the cases, and grade its answers.

    shots: the number of examples. If given, the base model answers, too, without and with examples, and so does the adapter
    without its grammar. None: only the adapter. keep: file of the answers so far, to continue an interrupted evaluation.
    """
    from expert_cli.inference.expert import open_expert
    from expert_cli.inference.generate import is_looping
    from expert_cli.inference.prompts import base_renderer

    check_gradable(cases, report, allowed)
    run = trained.plan.run
    examples = drawn_shots(trained, shots, cases, report) if shots else []
    expert = open_expert(run, trained.origin, report)
    renderer, template = expert.renderer, expert.renderer.template
    right = {case.where: renderer.ids(case.case.expected_text)[:NEW_TOKENS_OF_BASE] for case in cases}
    if loops := [where for where, ids in right.items() if any(is_looping(ids[:n]) for n in range(len(ids) + 1))]:
        report.warning(
            f"{len(loops)} of {len(cases)} right answers repeat themselves and are ended as loops: {loops[0]}"
        )
    facts = facts_of(trained, expert.source.sha256, template.name, template.input_separator)
    same = {**facts, "ends": renderer.ends, "shots": shots}

    def asked(title: str, how: GenerationConfig, by: PromptRenderer, before: Sequence[Row] = ()) -> Evaluation:
        answering = Answering(title, cases, how, report, keep, [same, [row.where for row in before]])
        return write_answers(expert.model, by, answering, allowed, before)

    found, bases = asked("answering", settings, renderer), dict[str, dict[str, Any]]()
    if shots is not None and settings.grammar:
        other = asked(base_title(WITHOUT_GRAMMAR, {}), replace(settings, grammar=None), renderer)
        bases[WITHOUT_GRAMMAR] = other.beside(found, {})
    alone = base_renderer(run, trained.origin, renderer.tokenizer)
    of_base = {} if shots is None else {"baseline": [], "few_shot": examples} if shots else {"baseline": []}
    for name, before in of_base.items():
        how = free(settings, 2 * longest_right_answer(alone, cases))
        with expert.model.disable_adapter():
            other = asked(base_title("", {"shots": len(before)}), how, alone, before)
        told = {"shots": len(before), "examples": [row.where for row in before], "template": alone.template.name}
        bases[name] = other.beside(found, told)
    return found.telling(expert=facts, **bases)


def facts_of(trained: TrainedAdapter, base_sha256: str, template: str, separator: str) -> dict[str, Any]:
    """Return the value of "expert": the adapter and the base model that are evaluated."""
    run, adapter = trained.plan.run, trained.origin.adapter
    told = {"expert": run.expert, "adapter": str(adapter), "adapter_sha256": sha256_of(adapter / WEIGHTS)}
    told |= {"base_model": run.model.name, "base_sha256": base_sha256, "quantization": run.model.quantization}
    return {**told, "dtype": run.compute.dtype, "template": template, "input_separator": separator}


def grade_kept(
    answers: Path, cases: Path | None, limit: int | None, report: Reporter, allowed: Permissions
) -> Evaluation:
    """Grade saved answers: a file of answers, or an evaluation. cases: a file of cases with the same ids and prompts."""
    document = read_json(answers)
    if not items(document, "answers"):
        if cases is not None:
            told = "--cases go with --adapter, or with --answers of a file that evaluate --output wrote"
            raise InputError(f"{told}: rows of answers are cases")
        rows = spread(case_files.read_answers(answers), limit)
        allowed.require(rows, report)
        return grade(rows, report, allowed.seconds).telling(cases_file=str(answers.resolve()), limit=limit)
    file = cases or Path(str(document.get("cases_file") or ""))
    if not file.is_file():
        raise InputError(f"{file}: the cases of {answers} do not exist", "name them: --cases FILE")
    by_id = {case.id: case for case in read_cases(file)}
    allowed.require([*by_id.values()], report)
    limit = min((int(one) for one in (limit, number(document, "limit")) if one), default=None)
    left = by_id.keys() - {str(part(row).get("id")) for row in items(document, "answers")}
    if left and limit is None:
        shown = shortened(", ".join(name for name in by_id if name in left), 100)
        report.warning(f"{len(left)} of {len(by_id)} cases have no answer and are left out: {shown}")
    rows = [_kept(part(row), by_id, answers) for row in items(document, "answers")]
    of_expert = {name: part(document, name) or None for name in ("expert", "generation")}
    found = grade(spread(rows, limit), report, allowed.seconds)
    return found.telling(**of_expert, cases_file=str(file.resolve()), limit=limit)


def _kept(row: Mapping[str, Any], cases: Mapping[str, EvalCase], path: Path) -> EvalCase:
    case, samples = cases.get(str(row.get("id"))), [*map(part, items(row, "samples"))]
    made = tuple(Answer(one.get("answer"), one.get("stop") or "") for one in samples or [part(row)])  # type: ignore[arg-type]
    is_whole = all(isinstance(one.text, str) for one in made)
    prompt = case_files.digest_of(case.question) if case and case.prompt else None
    if case is None or not is_whole or row.get("prompt") != prompt:
        told = f"{path}: {row.get('id')!r} has no answer or no case, or its case has another question now"
        hint = "give the cases that were answered: --cases FILE; or evaluate the adapter again: --adapter"
        raise InputError(told, hint)
    return replace(case, shown=str(row.get("schema_prompt") or ""), answers=made, is_sampled=bool(samples))


def check_gradable(cases: Cases, report: Reporter, allowed: Permissions = NOTHING) -> None:
    """Grade a dummy answer to every case, so that a case that cannot be graded fails before a model is loaded or trained."""
    allowed.require(cases, report)
    dummies, seen = list[EvalCase](), set[str]()
    for row in cases:
        if case := row.case.for_dummy(first=row.case.verifier not in seen):
            dummies.append(replace(row, case=case).answered(DUMMY))
        seen.add(row.case.verifier)
    grade(dummies, report, allowed.seconds)
