"""An adapter's evaluation: let it answer the cases, and its base model beside it, and judge; answers that were kept, again.

The base model, the same weights with the adapter switched off, is asked as anyone would ask it who has no adapter: in its own
chat template, held to nothing, without examples, and with some of the training rows before the question. Its answers may be
longer than the expert's: a chat model explains itself.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from expert_cli.config.adapter_origin import WEIGHTS
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.config.training_defaults import JSON_GRAMMARS
from expert_cli.data.rows import Row
from expert_cli.errors import InputError
from expert_cli.evaluation import cases as case_files
from expert_cli.evaluation.cases import EvalCase, read_cases, stratified_sample
from expert_cli.evaluation.grade import CASE_TIMEOUT_S, NOTHING, Evaluated, Evaluation, Permissions, beside, grade
from expert_cli.evaluation.verifiers.case import Case, plain
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.inference.expert_config import (
    GenerationConfig,
    Grammar,
    Stop,
)
from expert_cli.runs.metrics import BASES, WITHOUT_GRAMMAR, base_title, items, number, part, read_json
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import shortened

if TYPE_CHECKING:
    from expert_cli.inference.expert import PromptRenderer
    from expert_cli.inference.generate import Completion
    from expert_cli.inference.grammar import Held

NEW_TOKENS_OF_BASE = 512
"""What an answer of the base model may have at least; where right answers are long, twice as much as the longest."""
DUMMY = "x"
"""An answer that is right nowhere."""


Written = tuple[str, Stop, int]
"""A text, why it ends, and how many tokens it has."""


class Generations(NamedTuple):
    """The answer to each case; told: under "generation"; grammar: what held them (type, held, free), None for nothing."""

    answers: tuple[EvalCase, ...]
    told: Mapping[str, Any]
    grammar: Mapping[str, Any] | None

    @classmethod
    def of(
        cls,
        settings: GenerationConfig,
        cases: Sequence[EvalCase],
        written: Mapping[str, Sequence[Written]],
        free: int,
        started: float,
        **computed: Any,
    ) -> Generations:
        """Return what was written, by the cases' digests, as answers up to the first stop sequence.

        free: how many answers nothing held. computed: what decides on rounding: device and threads, or a server.
        """
        answers = []
        for case in cases:
            texts = []
            for text, stop, _ in written[case.digest]:
                cut = settings.until_stop(text)
                texts.append(case.answered(cut, *((stop, "") if cut == text else ("sequence", text))))
            answers.append(replace(texts[0], samples=tuple(texts)) if settings.samples else texts[0])
        every, seconds = [one for case in cases for one in written[case.digest]], time.monotonic() - started
        stops, tokens = Counter(stop for _, stop, _ in every), sum(count for *_, count in every)
        told = {"tokens": tokens, "cut_off": stops["length"], "looping": stops["looping"], **computed}
        told |= {"seconds": seconds, "tokens_per_s": tokens / max(1e-9, seconds)}
        kind = settings.grammar
        grammar = {"type": kind.type, "held": len(cases) - free, "free": free} if kind else None
        return cls(tuple(answers), settings.as_json() | told, grammar)


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


def drawn_shots(trained: TrainedAdapter, count: int, cases: Sequence[EvalCase], report: Reporter) -> list[Row]:
    """Return `count` training rows, drawn by the seed: none asks what a case asks, or answers a case's input as it is right.

    Raises InputError: the rows are gone, whole texts, or too few.
    """
    from expert_cli.data.select import select_rows
    from expert_cli.data.sources import locate_data

    data = replace(trained.plan.run.data.as_asked, validation=())
    rows = list(select_rows(data, locate_data(data, report), report).rows())
    if any(row.is_whole_text for row in rows):
        raise InputError("--shots: rows of whole texts hold no questions with answers", "leave --shots out")
    own = {(plain(below), plain(prompt)) for prompt, below in (case.asked for case in cases)}
    own |= {(plain(below), plain(case.case.expected_text)) for case in cases if (below := case.asked[1])}
    drawn = random.Random(trained.plan.run.seed).sample(rows, len(rows))  # noqa: S311
    examples = (row for row in drawn if row.is_example)
    free = (
        one for one in examples if own.isdisjoint((plain(one.input), plain(of)) for of in (one.question[0], one.answer))
    )
    if len(found := list(islice(free, count))) < count:
        raise InputError(f"--shots {count}: too few training rows ask what no case asks", "ask for fewer")
    return found


def held_for(turn: str, case: Case | None, grammar: Grammar | None) -> Held | None:
    """Return what holds the answer to a turn's text, by the case's own JSON Schema where it has one; None for free text."""
    if grammar is None:
        return None
    from expert_cli.inference.grammar import grammar_for  # the light side does without torch

    held = grammar_for(grammar, turn, getattr(case, "json_schema", None))
    if held and isinstance(case, QueryCase) and case.language == "postgresql":
        return replace(held, fault=case.fault)
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
    shots: Sequence[Row] = (),
    kept: KeptAnswers | None = None,
) -> Generations:
    """Let the model answer every case. shots: what comes before; kept: has answers of an earlier start, and keeps these."""
    import torch

    from expert_cli.inference.generate import Request, generate

    turns = [renderer.template.user_turn(*case.asked) for case in cases]
    held = [held_for(turn, case.case, settings.grammar) for turn, case in zip(turns, cases, strict=True)]
    known: dict[str, list[Written]] = kept.of(title) if kept else {}
    left = [n for n, case in enumerate(cases) if case.digest not in known]
    count, started = settings.samples or 1, time.monotonic()
    requests = [Request(_prompt(renderer, cases[n], shots), held[n], seed_of(settings, cases[n]), count) for n in left]
    if known:
        report.info(f"{len(cases) - len(left)} of {len(cases)} cases were answered before this was stopped")
    with report.progress(title, len(left), "cases") as bar:

        def on_batch(made: Mapping[int, list[Completion]]) -> None:
            new: dict[str, list[Written]] = {
                cases[left[n]].digest: [(renderer.decode(one.ids), one.stop, len(one.ids)) for one in some]
                for n, some in made.items()
            }
            known.update(new)
            if kept:
                kept.add(title, new)
            bar.update(sum(cases[n].digest in known for n in left))

        generate(model, requests, settings, renderer, on_batch)
    free = held.count(None) if settings.grammar else 0
    computed = {"device": model.device.type, "threads": torch.get_num_threads()}
    return Generations.of(settings, cases, known, free, started, **computed)


def seed_of(settings: GenerationConfig, case: EvalCase) -> int:
    """Return what a case gives to the seed of its batch."""
    return int.from_bytes(hashlib.sha256(f"{settings.seed} {case.digest}".encode()).digest()[:7], "big")


def _tell_of_what_is_not_held(cases: Sequence[EvalCase], grammar: Grammar, unheld: int, report: Reporter) -> None:
    from expert_cli.inference.grammar import not_held

    if unheld:
        told = f"{unheld} of {len(cases)} questions name no schema that can be read"
        report.warning(f"{told}: nothing holds their answers")
    of_json = cases if grammar.type in JSON_GRAMMARS else ()
    schemas = {one.where: schema for one in of_json if (schema := getattr(one.case, "json_schema", None))}
    if faults := [f"{where}: {fault}" for where, schema in schemas.items() if (fault := not_held(schema))]:
        report.warning(f"answers to {len(faults)} of {len(cases)} cases are held to any JSON: {faults[0]}")


def _prompt(renderer: PromptRenderer, case: EvalCase, shots: Sequence[Row]) -> list[int]:
    turns = []
    for example in shots:
        turns.append({"role": "user", "content": renderer.template.user_turn(example.question[0], example.input)})
        turns.append({"role": "assistant", "content": example.answer})
    return renderer.encode_messages([*turns, {"role": "user", "content": renderer.template.user_turn(*case.asked)}])


def cases_of(plan: Plan, cases: Path | None, limit: int | None = None) -> list[EvalCase]:
    """Return the cases in a file, default the expert's own, or `limit` of them. Raises InputError where there are none."""
    path = cases or plan.own_cases
    if not path.is_file():
        raise InputError(f"{path}: no such file", "give the cases: --cases FILE (evaluate --help shows one)")
    return case_files.shown_databases(stratified_sample(read_cases(path), limit), plan.run.data.schema_prompt)


def drawn_cases(plan: Plan, count: int) -> list[EvalCase]:
    """Return `count` of the expert's own cases, drawn by the run's seed; none where it has none. Raises InputError."""
    cases = read_cases(plan.own_cases) if plan.own_cases.is_file() else []
    drawn = random.Random(plan.run.seed).sample(cases, min(count, len(cases)))  # noqa: S311
    return case_files.shown_databases(drawn, plan.run.data.schema_prompt)


def evaluate_adapter(
    trained: TrainedAdapter,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    report: Reporter,
    *,
    case_timeout_s: float,
    shots: int | None = None,
    allowed: Permissions = NOTHING,
    keep: Path | None = None,
) -> Evaluated:
    """Let an adapter answer.

    shots: its base model, too, and once more after so many examples; and the adapter without its grammar. None: itself alone.
    keep: a file of the answers that are made, by which the same evaluation goes on where it was stopped.
    """
    from expert_cli.inference.expert import base_renderer, open_expert

    check_gradable(cases, report, case_timeout_s, allowed=allowed)
    run = trained.plan.run
    examples = drawn_shots(trained, shots, cases, report) if shots else []
    expert = open_expert(run, trained.origin, report)
    renderer, template = expert.renderer, expert.renderer.template
    bases = {} if shots is None else {"baseline": [], **({"few_shot": examples} if shots else {})}
    need = longest_right_answer(renderer, cases)
    if need >= settings.max_new_tokens:
        told = f"right answers to these cases have up to {need} tokens, an answer may have {settings.max_new_tokens}"
        report.warning(f"{told}: --max-new-tokens {need + 1}")
    facts = facts_of(trained, expert.source.sha256, template.name, template.input_separator)
    same = {**facts, **asdict(settings), "ends": sorted(renderer.stop_token_ids), "shots": [*bases, shots]}
    kept = KeptAnswers(keep, {**same, "cases": [case.digest for case in cases]}) if keep else None

    def asked(
        title: str, how: GenerationConfig, by: PromptRenderer, before: Sequence[Row] = ()
    ) -> tuple[Generations, Evaluation]:
        written = write_answers(expert.model, by, cases, how, report, title, before, kept)
        return written, grade(written.answers, report, case_timeout_s)

    written, evaluation = asked("answering", settings, renderer)
    compared = dict[str, dict[str, Any]]()
    if settings.grammar and written.grammar:
        unheld = written.grammar["free"]
        _tell_of_what_is_not_held(cases, settings.grammar, unheld, report)
        if unheld < len(cases) and shots is not None:
            others, judged = asked(base_title(WITHOUT_GRAMMAR, {}), replace(settings, grammar=None), renderer)
            compared[WITHOUT_GRAMMAR] = beside(judged, evaluation, {"generation": others.told})
    for name, before in bases.items():
        alone = base_renderer(run, trained.origin, renderer.tokenizer)
        longest = max(settings.max_new_tokens, NEW_TOKENS_OF_BASE, 2 * longest_right_answer(alone, cases))
        free = replace(settings, stops=(), grammar=None, samples=0, max_new_tokens=longest)
        with expert.model.disable_adapter():
            others, judged = asked(base_title("", {"shots": len(before)}), free, alone, before)
        how = {"shots": len(before), "examples": [row.where for row in before]}
        compared[name] = beside(judged, evaluation, {**how, "template": alone.template.name, "generation": others.told})
    return Evaluated(evaluation, compared, facts, written.told, grammar=written.grammar)


def facts_of(trained: TrainedAdapter, base_sha256: str, template: str, separator: str) -> dict[str, Any]:
    """Return what is evaluated, as the document says it under "expert"."""
    run, adapter = trained.plan.run, trained.origin.adapter
    told = {"expert": run.expert, "adapter": str(adapter), "adapter_sha256": sha256_of(adapter / WEIGHTS)}
    told |= {"base_model": run.model.name, "base_sha256": base_sha256, "quantization": run.model.quantization}
    return {**told, "dtype": run.compute.dtype, "template": template, "input_separator": separator}


def grade_kept(
    answers: Path,
    cases: Path | None,
    limit: int | None,
    case_timeout_s: float,
    report: Reporter,
    allowed: Permissions = NOTHING,
) -> Evaluated:
    """Grade answers that are written already: rows of answers, or those that an evaluation kept, without the model.

    cases: of an evaluation, of the same ids and prompts; default, those that it names. Raises InputError for `cases` of rows,
    which are cases themselves, and where an answer has no case any more, or its case asks something else now.
    """
    document = read_json(answers)
    if not items(document, "answers"):
        if cases is not None:
            told = "--cases go with --adapter, or with --answers of a file that evaluate --output wrote"
            raise InputError(f"{told}: rows of answers are cases")
        rows = stratified_sample(case_files.read_answers(answers), limit)
        allowed.require(rows, report)
        return Evaluated(grade(rows, report, case_timeout_s), cases_file=answers, limit=limit)
    file = cases or Path(str(document.get("cases_file") or ""))
    if not file.is_file():
        raise InputError(f"{file}: the cases that {answers} answers are not there", "name them: --cases FILE")
    by_id = {case.id: case for case in read_cases(file)}
    allowed.require([*by_id.values()], report)
    limit = min((int(one) for one in (limit, number(document, "limit")) if one), default=None)
    left = by_id.keys() - {str(part(row).get("id")) for row in items(document, "answers")}
    if left and limit is None:
        shown = shortened(", ".join(name for name in by_id if name in left), 100)
        report.warning(f"{len(left)} of {len(by_id)} cases have no answer and are left out: {shown}")

    def judged(told: Mapping[str, Any]) -> Evaluation:
        rows = [_kept(part(row), by_id, answers) for row in items(told, "answers")]
        return grade(stratified_sample(rows, limit), report, case_timeout_s)

    expert, bases = judged(document), {}
    for name in BASES:
        if other := part(document, name):
            asked: dict[str, Any] = {
                key: other[key] for key in ("shots", "examples", "template", "generation") if key in other
            }
            bases[name] = beside(judged(other), expert, asked)
    facts, generation, held = (part(document, name) or None for name in ("expert", "generation", "grammar"))
    grammar = {name: held.get(name) for name in ("type", "held", "free")} if held else None
    return Evaluated(expert, bases, facts, generation, file, limit, grammar=grammar)


def _kept(row: Mapping[str, Any], cases: Mapping[str, EvalCase], path: Path) -> EvalCase:
    case, texts = cases.get(str(row.get("id"))), [row, *map(part, items(row, "samples"))]
    is_whole = all(isinstance(one.get("answer"), str) for one in texts)
    prompt = case_files.digest_of(case.question) if case and case.prompt else None
    if case is None or not is_whole or row.get("prompt") != prompt:
        told = f"{path}: {row.get('id')!r} has no answer or no case, or its case asks something else now"
        hint = "give the cases that were answered: --cases FILE; or evaluate the adapter again: --adapter"
        raise InputError(told, hint)
    case = replace(case, shown=str(row.get("schema_prompt") or ""))
    first, *samples = (case.answered(one["answer"], one.get("stop") or "", one.get("raw") or "") for one in texts)
    return replace(first, samples=tuple(samples))


def check_gradable(
    cases: Sequence[EvalCase],
    report: Reporter,
    case_timeout_s: float = CASE_TIMEOUT_S,
    *,
    allowed: Permissions = NOTHING,
) -> None:
    """Judge a dummy answer to every case, so that what cannot be judged is told before any model is loaded or trained.

    Raises InputError: a case is at fault, or not allowed; EnvironmentProblem: an engine or a wall is missing.
    """
    allowed.require(cases, report)
    dummies, seen = list[EvalCase](), set[str]()
    for row in cases:
        if case := row.case.for_dummy(first=row.case.verifier not in seen):
            dummies.append(replace(row, case=case).answered(DUMMY))
        seen.add(row.case.verifier)
    grade(dummies, report, case_timeout_s)
