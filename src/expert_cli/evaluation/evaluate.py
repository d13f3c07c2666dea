"""An adapter's evaluation: load it, let it answer the cases, judge, and leave the result where people look for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.config.adapter_origin import WEIGHTS
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.answer import longest_right_answer, write_answers
from expert_cli.evaluation.baseline import NEW_TOKENS as NEW_TOKENS_OF_BASE
from expert_cli.evaluation.baseline import Asked, Comparison, ask_base, ask_freely
from expert_cli.evaluation.cases import (
    CaseAnswer,
    EvalCase,
    read_answers,
    read_cases,
    shown_databases,
    stratified_sample,
)
from expert_cli.evaluation.endpoint import Server
from expert_cli.evaluation.few_shot import NO_SHOTS, drawn_shots
from expert_cli.evaluation.grade import grade
from expert_cli.evaluation.held import held_for, not_held
from expert_cli.evaluation.kept_answers import KeptAnswers
from expert_cli.evaluation.permissions import NOTHING, Permissions
from expert_cli.evaluation.regrade import generation, held_to, read_kept
from expert_cli.evaluation.result import Evaluated
from expert_cli.hardware.devices import DEVICES
from expert_cli.inference.expert_config import NEW_TOKENS, DecodingConfig, decoding_of, read_expert_config
from expert_cli.inference.generation_config import GenerationConfig, generation_config
from expert_cli.runs.metrics import ENDPOINT, WITHOUT_GRAMMAR, part
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.statistics import Paired

if TYPE_CHECKING:
    from expert_cli.inference.expert_config import Grammar
    from expert_cli.inference.prompt_renderer import PromptRenderer

BATCH = {"cpu": 32, "gpu": 64}
CASE_TIMEOUT_S = 2.0
DUMMY = "x"
"""An answer that is right nowhere."""


def cases_of(plan: Plan, cases: Path | None, limit: int | None = None) -> list[EvalCase]:
    """Return the cases in a file, default the expert's own, or `limit` of them. Raises InputError where there are none."""
    path = cases or plan.own_cases
    if not path.is_file():
        raise InputError(f"{path}: no such file", "give the cases: --cases FILE (evaluate --help shows one)")
    return shown_databases(stratified_sample(read_cases(path), limit), plan.run.data.schema_prompt)


def drawn_cases(plan: Plan, count: int) -> list[EvalCase]:
    """Return `count` of the expert's own cases, drawn by the run's seed; none where it has none. Raises InputError."""
    cases = read_cases(plan.own_cases) if plan.own_cases.is_file() else []
    drawn = random.Random(plan.run.seed).sample(cases, min(count, len(cases)))  # noqa: S311
    return shown_databases(drawn, plan.run.data.schema_prompt)


def room_for_answers(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> int:
    """Return how many tokens answers to cases may have where nothing else is said: as many as the right ones need, too."""
    return max(NEW_TOKENS, longest_right_answer(renderer, cases) + 1)


def answer_settings(
    plan: Plan,
    decoding: DecodingConfig,
    max_new_tokens: int | None = None,
    batch_size: int | None = None,
    *,
    samples: int = 0,
) -> GenerationConfig:
    """Return how answers are written where nothing else is said: as many at once as the device takes; greedily, one a case."""
    max_new_tokens = max_new_tokens or decoding.max_new_tokens
    batch_size = batch_size or BATCH[DEVICES[plan.run.compute.device].kind]
    return generation_config(decoding, max_new_tokens, batch_size, samples=samples)


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
    examples = drawn_shots(trained, shots, report) if shots else NO_SHOTS
    examples.require_for(cases)
    expert = open_expert(run, trained.origin, report)
    bases = {}
    if shots is not None:
        alone = base_renderer(run, trained.origin, expert.renderer.tokenizer)
        bases = {"baseline": (alone, NO_SHOTS), **({"few_shot": (alone, examples)} if shots else {})}
    _tell_of_long_answers(expert.renderer, cases, settings, report)
    facts = _facts(
        trained, expert.source.sha256, expert.renderer.template.name, expert.renderer.template.input_separator
    )
    ends = sorted(expert.renderer.stop_token_ids)
    same = {
        **facts,
        **asdict(settings),
        "ends": ends,
        "cases": [case.digest for case in cases],
        "shots": [*bases, shots],
    }
    asked = Asked(expert, cases, settings, report, case_timeout_s, KeptAnswers(keep, same) if keep else None)
    written = asked.answers("answering", settings)
    evaluation = grade(written.answers, report, case_timeout_s)
    compared, grammar = dict[str, Comparison](), None
    if settings.grammar:
        grammar = {"type": settings.grammar.type, "held": len(cases) - written.free, "free": written.free}
        _tell_of_what_is_not_held(written.free, cases, settings.grammar, report)
        if grammar["held"] and shots is not None:
            compared[WITHOUT_GRAMMAR] = ask_freely(asked, evaluation)
    for name, (renderer, before) in bases.items():
        compared[name] = ask_base(asked, renderer, before, evaluation)
    return Evaluated(evaluation, compared, facts, {**settings.as_json(), **written.as_json()}, grammar=grammar)


def _facts(trained: TrainedAdapter, base_sha256: str, template: str, separator: str) -> dict[str, Any]:
    run = trained.plan.run
    return {
        "expert": run.expert,
        "adapter": str(trained.origin.adapter),
        "adapter_sha256": sha256_of(trained.origin.adapter / WEIGHTS),
        "base_model": run.model.name,
        "base_sha256": base_sha256,
        "quantization": run.model.quantization,
        "dtype": run.compute.dtype,
        "template": template,
        "input_separator": separator,
    }


def evaluate_served(
    server: Server,
    trained: TrainedAdapter | None,
    plan: Plan,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    *,
    case_timeout_s: float,
    allowed: Permissions = NOTHING,
    keep: Path | None = None,
) -> Evaluated:
    """Let a server answer, asked as the adapter's expert.json says, else as the manifest does. keep: as `evaluate_adapter`."""
    check_gradable(cases, server.report, case_timeout_s, allowed=allowed)
    file = trained.origin.expert_config if trained else None
    asked = read_expert_config(file) if file else None
    separator = asked.input_separator if asked else "\n\n"
    first = "" if asked else plan.run.model.system_prompt or ""
    system = [{"role": "system", "content": first}] if first else []
    said, questions = _writer(file, as_text=server.takes_text), []
    for case in cases:
        turn = f"{case.asked.prompt}{separator}{case.asked.input}" if case.asked.input else case.asked.prompt
        held = held_for(turn, case.case, settings.grammar)
        prompt = said([*system, {"role": "user", "content": turn}])
        questions.append((case, prompt, held.served if held else {}))
    written = server.answers(questions, settings := replace(settings, num_beams=1), keep)
    evaluation, grammar = grade(written.answers, server.report, case_timeout_s), None
    if settings.grammar:
        grammar = {"type": settings.grammar.type, "held": len(cases) - written.free, "free": written.free}
    facts = _facts(trained, trained.origin.base_sha256, asked.template, separator) if trained and asked else None
    return Evaluated(evaluation, {}, facts, {**settings.as_json(), **written.as_json()}, grammar=grammar)


def _writer(file: Path | None, *, as_text: bool) -> Callable[[Any], dict[str, Any]]:
    """Return what a request says of a conversation: itself, or its text by the tokenizer beside an expert.json, without the
    token that servers put before a text.
    """
    if not as_text:
        return lambda messages: {"messages": messages}
    if file is None:
        raise InputError("/completions takes a prompt as text, which an adapter's tokenizer writes", "give --adapter")
    from expert_cli.model.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(file.parent)
    write, bos = tokenizer.hf.apply_chat_template, tokenizer.leading_token
    return lambda said: {"prompt": str(write(said, tokenize=False, add_generation_prompt=True)).removeprefix(bos)}


def beside(server: Server, plan: Plan, cases: Sequence[EvalCase], settings: GenerationConfig, **how: Any) -> Evaluated:
    """Let another model answer, by its server: not drawn, held to nothing. how: as `evaluate_served` takes it."""
    longest = max(settings.max_new_tokens, NEW_TOKENS_OF_BASE)
    free = replace(settings, stops=(), grammar=None, samples=0, temperature=0.0, max_new_tokens=longest)
    return evaluate_served(server, None, plan, cases, free, **how)


def with_beside(found: Evaluated, other: Evaluated) -> Evaluated:
    """Return an evaluation with that of another model beside it."""
    pairs = Paired.of(other.evaluation.passed, found.evaluation.passed)
    asked = {"shots": 0, "examples": [], "template": "its server's", "generation": other.generation}
    return replace(found, bases={**found.bases, ENDPOINT: Comparison(other.evaluation, pairs, asked)})


def grade_kept(
    answers: Path,
    cases: Path | None,
    limit: int | None,
    case_timeout_s: float,
    report: Reporter,
    allowed: Permissions = NOTHING,
) -> Evaluated:
    """Grade answers that are written already: rows of answers, or those that an evaluation kept.

    cases: of an evaluation; default, those that it names. Raises InputError for `cases` of rows, which are cases themselves.
    """
    kept = read_kept(answers, cases)
    if kept is not None:
        evaluation, bases = kept.judged(report, case_timeout_s, limit, allowed)
        facts = part(kept.document, "expert") or None
        written, grammar = generation(kept.document), held_to(kept.document)
        return Evaluated(evaluation, bases, facts, written, kept.cases, kept.limit(limit), grammar=grammar)
    if cases is not None:
        raise InputError(
            "--cases go with --adapter, or with --answers of a file that evaluate --output wrote: rows of answers are cases"
        )
    rows = stratified_sample(read_answers(answers), limit)
    allowed.require(rows, report)
    evaluation = grade(rows, report, case_timeout_s)
    return Evaluated(evaluation, {}, None, None, answers, limit)


def _tell_of_what_is_not_held(free: int, cases: Sequence[EvalCase], grammar: Grammar, report: Reporter) -> None:
    if free:
        report.warning(f"{free} of {len(cases)} questions name no schema that can be read: nothing holds their answers")
    faults = [(row.where, fault) for row in cases if (fault := not_held(row.case, grammar))]
    if faults:
        where, fault = faults[0]
        report.warning(f"answers to {len(faults)} of {len(cases)} cases are held to any JSON: {where}: {fault}")


def _tell_of_long_answers(
    renderer: PromptRenderer, cases: Sequence[EvalCase], settings: GenerationConfig, report: Reporter
) -> None:
    need = longest_right_answer(renderer, cases)
    if need >= settings.max_new_tokens:
        report.warning(
            f"right answers to these cases have up to {need} tokens, an answer may have {settings.max_new_tokens}: "
            f"--max-new-tokens {need + 1}"
        )


def check_gradable(
    cases: Sequence[EvalCase],
    report: Reporter,
    case_timeout_s: float = CASE_TIMEOUT_S,
    *,
    remedy: str = "",
    allowed: Permissions = NOTHING,
) -> None:
    """Judge a dummy answer to every case, so that what cannot be judged is told before any model is loaded or trained.

    Raises InputError: a case is at fault, or not allowed; EnvironmentProblem: an engine or a wall is missing, or, where a
    `remedy` is named besides installing what is missing, no answer can be right because answers can only be parsed here.
    """
    allowed.require(cases, report)
    dummies, seen = list[CaseAnswer](), set[str]()
    for row in cases:
        case = row.case.for_dummy(first=row.case.verifier not in seen)
        seen.add(row.case.verifier)
        if case is not None:
            dummies.append(replace(row, case=case).answered(DUMMY))
    found = grade(dummies, report, case_timeout_s).examples("parsed_only")
    if not found:
        return
    told = f"{found[0].row.where}: no answer can be right on this machine: {found[0].verdict.detail}"
    if remedy:
        raise EnvironmentProblem(told, f"install what is missing, or {remedy}")
    report.warning(told)


def accuracy_of(model: Any, renderer: PromptRenderer, cases: Sequence[EvalCase], report: Reporter, plan: Plan) -> float:
    """Let a model in training answer the cases as it is, and return the share that is right."""
    settings = answer_settings(plan, decoding_of(plan.loaded.manifest))
    written = write_answers(model, renderer, cases, settings, NullReporter(), "")
    share = grade(written.answers, NullReporter(), CASE_TIMEOUT_S).share
    report.info(f"answers   {share.correct} of {share.cases} are right")
    return share.accuracy
