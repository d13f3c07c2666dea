"""Which answers of a round are trained: right ones that differ, and expected ones where the manifest says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.data.columns import Columns
from expert_cli.data.templates.chat import Template
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, Question
from expert_cli.inference.expert_config import Grammar, decoding_of
from expert_cli.inference.vote import same_as
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.pipeline.rft.sampling import RIGHT, Drawn, Sampled
from expert_cli.pipeline.rft.work import Work
from expert_cli.utils.json_lines import write_json_lines
from expert_cli.utils.statistics import mean_of_shares, pass_at
from expert_cli.utils.text import plural

WHOLE = ("end", "sequence")
"""Why an answer ends that came to its own end: one that was cut off has none to learn."""


@dataclass(frozen=True)
class RowForm:
    """In which columns the first training's rows have prompt, input and answer, and how a user's turn is written.

    shown: what stands in the place of the input, made of it when the row is read; None = the input itself.
    """

    columns: Columns
    template: Template
    shown: SchemaPromptConfig | None = None

    def row(self, asked: Question, answer: str) -> dict[str, Any]:
        """Return a row in this form; an input that has no column stands in the turn as it does when the expert is asked."""
        columns, turn = self.columns, self.template.user_turn(asked.prompt, "" if self.shown else asked.input)
        if columns.messages:
            turns = [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
            return {columns.messages: turns}
        beside = {name: None for name in (columns.system, columns.history, columns.tools) if name}
        if columns.input:
            return {columns.instruction: asked.prompt, columns.input: asked.input, columns.response: answer} | beside
        return {columns.instruction: turn, columns.response: answer} | beside

    def require_shown(self, prompts: Sequence[EvalCase]) -> None:
        """Raise InputError where a row of a prompt can neither name its database nor has its tables in the input."""
        if self.shown is None:
            return
        for one in prompts:
            named = self.database(one.file).get(self.columns.database)
            if one.case.file_key == "database" and not named and not (self.columns.input and one.input):
                rule = self.shown.databases or "not written"
                raise InputError(
                    f"{one.where}: rows cannot name {one.file}: training.dataset.schema_prompt.databases is {rule}",
                    "write a pattern that fits the prompts' databases too, and name theirs in a column of the rows",
                )

    def database(self, file: Path | None) -> dict[str, Any]:
        """Return the column that names a prompt's database, where rows are shown theirs."""
        named = self.shown.name_of(file) if self.shown and file else ""
        return {self.columns.database: named} if self.columns.database else {}


@dataclass(frozen=True)
class Selected:
    """What a round has to learn from. figures: as report.json says them. reason: why it is nothing, or ""."""

    figures: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Kept:
    """What is trained of a prompt. drawn: the numbers of the samples; gold: the expected answer, "" for none."""

    of: Drawn
    drawn: tuple[int, ...]
    gold: str


def select(work: Work, sampled: Sampled, number: int, form: RowForm) -> Selected:
    """Choose what is trained, write it as rows, and say what the answers came to."""
    grammar = decoding_of(work.plan.loaded.manifest).grammar
    kept = [keep(one, work.settings, grammar) for one in sampled.drawn]
    rows = [row for one in kept for row in _rows(one, number, form)]
    figures = _figures(sampled, kept, grammar)
    write_json_lines(work.paths(number).rows, rows)
    wrong = [one for one in sampled.drawn if one.expected != RIGHT]
    if wrong and work.settings.gold != "never":
        told = f"{plural(len(wrong), 'expected answer')} of {len(sampled.drawn)} not trained: wrong by their own judge"
        work.report.warning(f"{told}: {wrong[0].prompt.where}: {wrong[0].expected}")
    reason = _nothing_to_learn(sampled.drawn, figures, work.settings)
    return Selected(figures | (dict.fromkeys(("kept", "expected"), 0) if reason else {}), reason)


def keep(drawn: Drawn, settings: RftConfig, grammar: Grammar | None) -> Kept:
    """Choose of one prompt: the first right answers that differ in more than their form, and the expected one."""
    chosen: dict[str, int] = {}
    for number, one in enumerate(drawn.samples):
        if one.is_right and one.stop in WHOLE and len(chosen) < settings.keep:
            chosen.setdefault(normal_form(drawn, one.answer, grammar), number)
    failed = not any(one.is_right for one in drawn.samples)
    expected = next(iter(drawn.prompt.case.right_answers()), "")
    wanted = settings.gold == "always" or (settings.gold == "failed" and failed)
    is_new = bool(expected) and normal_form(drawn, expected, grammar) not in chosen
    is_right = drawn.expected == RIGHT  # part of an object need not be what its schema asks for
    return Kept(drawn, tuple(chosen.values()), expected if wanted and is_new and is_right else "")


def normal_form(drawn: Drawn, answer: str, grammar: Grammar | None) -> str:
    """Return what is the same for answers that differ in their form alone: blanks, case of names, what stands around them."""
    return same_as(drawn.prompt.answered(answer).extracted or "", grammar)


def _rows(kept: Kept, number: int, form: RowForm) -> list[dict[str, Any]]:
    answers = [(kept.of.samples[index].answer.strip(), index + 1) for index in kept.drawn]
    answers += [(kept.gold, 0)] if kept.gold else []
    return [
        {
            **form.row(kept.of.prompt.question, answer),
            **form.database(kept.of.prompt.file),
            "case": kept.of.prompt.id,
            "round": number,
            "sample": sample or "expected",
        }
        for answer, sample in answers
    ]


def _figures(sampled: Sampled, kept: Sequence[Kept], grammar: Grammar | None) -> dict[str, Any]:
    """Return what the answers of a round came to."""
    right = [sum(sample.is_right for sample in one.samples) for one in sampled.drawn]
    tries = len(sampled.drawn[0].samples)
    estimates = {k: mean_of_shares([pass_at(k, count, tries) for count in right], tries / k) for k in (1, tries)}
    differing = sum(len({normal_form(one, each.answer, grammar) for each in one.samples}) > 1 for one in sampled.drawn)
    return {
        "prompts": len(sampled.drawn),
        "samples": tries,
        "asked": tries * len(sampled.drawn),
        "right": sum(right),
        "pass_at": {str(k): estimate.mean for k, estimate in estimates.items()},
        "pass_at_ci95": {str(k): list(estimate.ci95 or (0.0, 1.0)) for k, estimate in estimates.items()},
        "all_right": right.count(tries),
        "all_wrong": right.count(0),
        "differing": differing,
        "kept": sum(len(one.drawn) for one in kept),
        "expected": sum(bool(one.gold) for one in kept),
        "tokens": sampled.tokens,
        "sampling_seconds": sampled.seconds,
    }


def _nothing_to_learn(drawn: Sequence[Drawn], figures: dict[str, Any], settings: RftConfig) -> str:
    """Return why a round has nothing to learn from; "" where it has."""
    asked, some = figures["asked"], len(drawn) - figures["all_right"] - figures["all_wrong"]
    if not figures["right"]:
        return f"none of {asked:,} answers is right: there is nothing to learn from; train the first stage for longer"
    if not some and not figures["all_wrong"]:
        return f"all {asked:,} answers are right: there is nothing left to learn"
    if not some and settings.gold == "never":
        return "no prompt has some right answers and some wrong ones: there is nothing to learn from without gold"
    if not figures["all_wrong"] and not settings.keep and settings.gold == "failed":
        return "no prompt has wrong answers alone: there is nothing left to learn"
    if not figures["kept"] + figures["expected"]:
        return "no right answer came to its own end: there is nothing to learn from"
    return ""
