"""An adapter's evaluation: let it answer the cases, and its base model beside it, and judge; answers that were kept, again.

The base model, the same weights with the adapter switched off, is asked as anyone would ask it who has no adapter: in its own
chat template, held to nothing, without examples, and with some of the training rows before the question.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from expert_cli.config.adapter_origin import WEIGHTS
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.config.training_defaults import JSON_GRAMMARS
from expert_cli.data.rows import Row, asked_hash
from expert_cli.errors import InputError
from expert_cli.evaluation import cases as case_files
from expert_cli.evaluation.cases import EvalCase, read_cases, stratified_sample
from expert_cli.evaluation.grade import CASE_TIMEOUT_S, NOTHING, Evaluated, Evaluation, Permissions, beside, grade
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.inference.expert_config import GenerationConfig, Grammar, Stop
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


Written = tuple[str, Stop, int, bool]
"""A text, why it ends, how many tokens it has, and whether nothing held it."""


class Generations(NamedTuple):
    """The answer to each case; told: under "generation"; grammar: what held them (type, held, free), None for nothing."""

    answers: tuple[EvalCase, ...]
    told: Mapping[str, Any]
    grammar: Mapping[str, Any] | None


class Answering:
    """One pass over the cases: answers as they are made, kept in a file by which the same pass goes on where it was stopped."""

    def __init__(self, title: str, file: Path | None = None, asked: Any = None) -> None:
        """Read what the file has of this pass. asked: what two equal passes have in common."""
        self.title, self._file, self._started = title, file, time.monotonic()
        self._pass, self.made = case_files.digest_of({title: asked}), dict[str, list[Written]]()
        for line in file.read_text(encoding="utf-8").splitlines() if file and file.is_file() else ():
            with suppress(ValueError):  # the last line may not have been written whole
                of, case, answers = json.loads(line)
                self.made |= {case: answers} if of == self._pass else {}

    def add(self, case: str, answers: list[Written]) -> None:
        """Keep the answers to a case of this digest."""
        self.made[case] = answers
        if self._file:
            with self._file.open("a", encoding="utf-8", newline="\n") as file:
                file.write(f"\n{json.dumps([self._pass, case, answers])}\n")

    def done(self, settings: GenerationConfig, cases: Sequence[EvalCase], **computed: Any) -> Generations:
        """Return the answers, each up to the first stop sequence. computed: what decides on rounding: a device, or a server."""
        answers, every = [], [self.made[case.digest] for case in cases]
        for case, some in zip(cases, every, strict=True):
            ends = ((settings.until_stop(text), text, stop) for text, stop, *_ in some)
            texts = [case.answered(cut, stop if cut == text else "sequence") for cut, text, stop in ends]
            answers.append(replace(texts[0], samples=tuple(texts)) if settings.samples else texts[0])
        stops, tokens = Counter(one[1] for one in chain(*every)), sum(one[2] for one in chain(*every))
        told = {"tokens": tokens, "cut_off": stops["length"], "looping": stops["looping"], **computed}
        seconds = time.monotonic() - self._started
        told |= {"seconds": seconds, "tokens_per_s": tokens / max(1e-9, seconds)}
        grammar, free = settings.grammar, sum(any(one[3] for one in some) for some in every)
        held = {"type": grammar.type, "held": len(cases) - free, "free": free} if grammar else None
        return Generations(tuple(answers), settings.as_json() | told, held)


def drawn_shots(trained: TrainedAdapter, count: int, cases: Sequence[EvalCase], report: Reporter) -> list[Row]:
    """Return `count` training rows, drawn by the seed, of which none asks what a case asks. Raises InputError."""
    from expert_cli.data.select import select_rows
    from expert_cli.data.sources import locate_data

    data = replace(trained.plan.run.data.as_asked, validation=())
    rows = list(select_rows(data, locate_data(data, report), report).rows())
    own = {asked_hash(*asked) for case in cases for asked in (case.asked, (case.prompt, case.input))}
    drawn = random.Random(trained.plan.run.seed).sample(rows, len(rows))  # noqa: S311
    found = [*islice((row for row in drawn if row.is_example and asked_hash(*row.question) not in own), count)]
    if len(found) < count:
        raise InputError(f"--shots {count}: too few training rows are questions that no case asks", "ask for fewer")
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


def not_held(cases: Sequence[EvalCase], grammar: Grammar) -> list[str]:
    """Return what of the cases' JSON Schemas holds no answer, and where."""
    from expert_cli.inference.grammar import fault_of

    schemas = [(one.where, getattr(one.case, "json_schema", None)) for one in cases if grammar.type in JSON_GRAMMARS]
    return [f"{where}: {fault}" for where, schema in schemas if schema and (fault := fault_of(schema))]


def longest_right_answer(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> int:
    """Return how many tokens the longest right answer to a case has; of programs, which have tests alone, 0."""
    return max((renderer.tokens(case.case.expected_text) for case in cases), default=0)


def write_answers(
    model: Any,
    renderer: PromptRenderer,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    report: Reporter,
    answering: Answering,
    shots: Sequence[Row] = (),
) -> Generations:
    """Let the model answer every case that is not answered yet. shots: what comes before."""
    import torch

    from expert_cli.inference.generate import Request, generate

    turns = [renderer.template.user_turn(*case.asked) for case in cases]
    held = [held_for(turn, case.case, settings.grammar) for turn, case in zip(turns, cases, strict=True)]
    left = [n for n, case in enumerate(cases) if case.digest not in answering.made]
    count = settings.samples or 1
    requests = [Request(_prompt(renderer, cases[n], shots), held[n], seed_of(settings, cases[n]), count) for n in left]
    if answering.made:
        report.info(f"{len(cases) - len(left)} of {len(cases)} cases were answered before this was stopped")
    with report.progress(answering.title, len(left), "cases") as bar:

        def on_batch(made: Mapping[int, list[Completion]]) -> None:
            for n, some in ((left[n], some) for n, some in made.items()):
                told = [(renderer.decode(one.ids), one.stop, len(one.ids), held[n] is None) for one in some]
                answering.add(cases[n].digest, told)
            bar.update(sum(cases[n].digest in answering.made for n in left))

        generate(model, requests, settings, renderer, on_batch)
    return answering.done(settings, cases, device=model.device.type, threads=torch.get_num_threads())


def seed_of(settings: GenerationConfig, case: EvalCase) -> int:
    """Return what a case gives to the seed of its batch."""
    return int.from_bytes(hashlib.sha256(f"{settings.seed} {case.digest}".encode()).digest()[:7], "big")


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
    cases = cases_of(plan, None) if plan.own_cases.is_file() else []
    return random.Random(plan.run.seed).sample(cases, min(count, len(cases)))  # noqa: S311


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
    facts = facts_of(trained, expert.source.sha256, template.name, template.input_separator)
    same = {**facts, **asdict(settings), "ends": sorted(renderer.stop_token_ids), "shots": shots}

    def asked(
        title: str, how: GenerationConfig, by: PromptRenderer, before: Sequence[Row] = ()
    ) -> tuple[Generations, Evaluation]:
        answering = Answering(title, keep, [same, [row.where for row in before]])
        written = write_answers(expert.model, by, cases, how, report, answering, before)
        return written, grade(written.answers, report, case_timeout_s)

    written, evaluation = asked("answering", settings, renderer)
    compared = dict[str, dict[str, Any]]()
    if settings.grammar and written.grammar:
        if unheld := written.grammar["free"]:
            told = "questions name no schema that can be read: nothing holds their answers"
            report.warning(f"{unheld} of {len(cases)} {told}")
        if faults := not_held(cases, settings.grammar):
            report.warning(f"answers to {len(faults)} of {len(cases)} cases are held to any JSON: {faults[0]}")
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
    """Grade answers that are written already; cases: others of the same ids and prompts."""
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
            kept: Any = {key: other[key] for key in ("shots", "examples", "template", "generation") if key in other}
            bases[name] = beside(judged(other), expert, kept)
    facts, generation, grammar = (part(document, name) or None for name in ("expert", "generation", "grammar"))
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
    first, *samples = (case.answered(one["answer"], one.get("stop") or "") for one in texts)
    return replace(first, samples=tuple(samples))


def check_gradable(
    cases: Sequence[EvalCase],
    report: Reporter,
    case_timeout_s: float = CASE_TIMEOUT_S,
    *,
    allowed: Permissions = NOTHING,
) -> None:
    """Judge a dummy answer to every case: raises what cannot be judged before any model is loaded or trained."""
    allowed.require(cases, report)
    dummies, seen = list[EvalCase](), set[str]()
    for row in cases:
        if case := row.case.for_dummy(first=row.case.verifier not in seen):
            dummies.append(replace(row, case=case).answered(DUMMY))
        seen.add(row.case.verifier)
    grade(dummies, report, case_timeout_s)
