"""One adapter on two base models: on the weights that it was trained on, and on the same weights in bf16.

4-bit and 8-bit weights differ from those that they were made of, and an adapter learns to make up for that. Most servers,
and whoever loads an adapter with PEFT alone, put it on the weights in bf16, where its answers are others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from expert_cli.config.plan import TrainedAdapter
from expert_cli.errors import IntegrityError
from expert_cli.evaluation.answer import write_answers
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S, answer_settings, cases_of, check_gradable
from expert_cli.evaluation.grade import grade
from expert_cli.evaluation.permissions import NOTHING, Permissions
from expert_cli.inference.expert_config import decoding_for
from expert_cli.manifest.types import Quantization
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Paired

if TYPE_CHECKING:
    from expert_cli.inference.expert import Expert

TRAINING_PROMPTS = 40
Answers = Callable[["Expert", str], list[bool]]
"""An expert, what is said meanwhile -> whether each of its answers is right."""


@dataclass(frozen=True)
class OnBases:
    """Which answers are right on the base model as trained, and in bf16: of the adapter, and of one fitted to that.

    asked: of what kind the questions are. fitted: None where none was.
    """

    quantization: str
    asked: str
    trained: tuple[bool, ...]
    plain: tuple[bool, ...]
    fitted: tuple[bool, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the value under "bases"; every pair: first as trained, second in bf16."""
        return {
            "asked": self.asked,
            "cases": len(self.trained),
            "as_trained": {"quantization": self.quantization, "correct": sum(self.trained)},
            "bf16": self._entry(self.plain),
            "fitted": self._entry(self.fitted) if self.fitted is not None else None,
        }

    def in_words(self) -> list[str]:
        """Return a sentence, and another where an adapter was fitted."""
        first = (
            f"{sum(self.trained)} of {len(self.trained)} {self.asked} are answered rightly on the base model as trained "
            f"({self.quantization}), {self._compared(self.plain)} on the same in bf16."
        )
        if self.fitted is None:
            return [first]
        return [first, f"Fitted to bf16, the adapter answers {self._compared(self.fitted)} rightly there."]

    def _entry(self, other: tuple[bool, ...]) -> dict[str, Any]:
        told = Paired.of(self.trained, other).as_json()
        return {"correct": sum(other), **{name: told[name] for name in ("lost", "gained", "drop", "ci95")}}

    def _compared(self, other: tuple[bool, ...]) -> str:
        pairs = Paired.of(self.trained, other)
        low, high = (f"{100 * share:+.1f}" for share in pairs.reversed.ci95)
        return f"{sum(other)} ({pairs.lost} lost, {pairs.gained} gained; 95 % interval {low} to {high} points)"


def _questions(
    trained: TrainedAdapter, limit: int | None, report: Reporter, allowed: Permissions
) -> tuple[str, Answers] | None:
    """Return what an adapter is asked, and how: its expert's cases, else prompts of its training; None, which is told, for
    neither.

    A case's answer is run; that to a training prompt is right if it is the row's. limit: ask so many at most.
    """
    from expert_cli.data.store.documents import drawn_turns
    from expert_cli.inference.generate import generate
    from expert_cli.inference.request import Request

    if limit == 0:
        return None
    settings = answer_settings(trained.plan, decoding_for(trained, report))
    if trained.plan.own_cases.is_file():
        cases = cases_of(trained.plan, None, limit)
        check_gradable(cases, report, allowed=allowed)

        def run(expert: Expert, title: str) -> list[bool]:
            written = write_answers(expert.model, expert.renderer, cases, settings, report, title)
            return grade(written.answers, report, CASE_TIMEOUT_S).passed

        return "cases", run
    count = min(limit or TRAINING_PROMPTS, TRAINING_PROMPTS)
    try:
        rows = drawn_turns(trained.origin.store, count, trained.plan.run.seed)
    except IntegrityError as error:  # the adapter is none the worse
        report.warning(error.message)
        return None
    if not rows:
        report.warning("no tests/cases.jsonl beside the manifest and no training rows here: nothing is asked")
        return None

    def repeat(expert: Expert, title: str) -> list[bool]:
        ends = expert.renderer.stop_token_ids
        with report.progress(title, len(rows), "answers") as bar:
            requests = [Request(row.prompt) for row in rows]
            written = generate(expert.model, requests, settings, expert.renderer, lambda done, _: bar.update(done))
        return [
            list(one.ids) == [i for i in row.answer if i not in ends] for (one,), row in zip(written, rows, strict=True)
        ]

    return "training prompts", repeat


def on_bases(
    trained: TrainedAdapter,
    limit: int | None,
    report: Reporter,
    fit: Callable[[TrainedAdapter], TrainedAdapter] | None = None,
    allowed: Permissions = NOTHING,
) -> tuple[TrainedAdapter, OnBases | None]:
    """Ask an adapter on the base model as trained and in bf16, `limit` questions at most; None where there are none.

    fit: fits an adapter to the base model in bf16; the fitted one is returned, and asked there, too. Raises what loading the
    models raises.
    """
    asked = _questions(trained, limit, report, allowed)
    bases, quantization = None, trained.plan.run.model.quantization
    if asked:
        what, answer = asked
        as_trained = _right(trained, answer, quantization, report)
        bases = OnBases(quantization, what, as_trained, _right(trained, answer, "bf16", report))
    if fit is None:
        return trained, bases
    fitted = fit(trained)
    if asked and bases:
        bases = replace(bases, fitted=_right(fitted, asked[1], "bf16", report))
    return fitted, bases


def _right(trained: TrainedAdapter, answer: Answers, quantization: Quantization, report: Reporter) -> tuple[bool, ...]:
    from expert_cli.inference.expert import open_expert

    run = trained.plan.run
    held = replace(run, model=replace(run.model, quantization=quantization))
    expert = open_expert(held, trained.origin, report)
    right = tuple(answer(expert, f"base in {quantization}"))
    del expert
    gc.collect()
    return right
