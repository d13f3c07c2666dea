"""The prompts that answers are drawn to, and those held back to judge the rounds: parted by database, never by row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from expert_cli.config.plan import Plan
from expert_cli.data.overlap import HeldOut
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, asked_by_cases, read_cases, shown_databases
from expert_cli.evaluation.evaluate import check_gradable
from expert_cli.evaluation.permissions import Permissions
from expert_cli.evaluation.verifiers.case import FORGED
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.reporter import Reporter

BY_FILE, BY_CATEGORY = "files that prompts are judged on", "categories of prompts"
HINT = "an evaluation must not ask what is trained: take them out"


@dataclass(frozen=True)
class Prompts:
    """What answers are drawn to, and what judges the rounds. by, parts, held_parts: what was held back, of how many."""

    sampled: tuple[EvalCase, ...]
    held_back: tuple[EvalCase, ...]
    by: str
    parts: int
    held_parts: int

    def shown(self, settings: SchemaPromptConfig | None) -> Prompts:
        """Return them with what each is shown of its database. Raises InputError: there is none."""
        sampled, held_back = (tuple(shown_databases(side, settings)) for side in (self.sampled, self.held_back))
        return replace(self, sampled=sampled, held_back=held_back)

    def of_round(self, number: int, limit: int | None, seed: int) -> list[EvalCase]:
        """Return the prompts of a round, in their order: all, or `limit` drawn by the seed."""
        if limit is None or limit >= len(self.sampled):
            return list(self.sampled)
        chosen = random.Random(f"{seed} {number}").sample(range(len(self.sampled)), limit)  # noqa: S311
        return [self.sampled[index] for index in sorted(chosen)]

    def of_run(self, settings: RftConfig, seed: int) -> list[EvalCase]:
        """Return every prompt that a run may ask, each once."""
        rounds = range(1, settings.rounds + 1)
        asked = {one.id: one for number in rounds for one in self.of_round(number, settings.limit, seed)}
        return [*asked.values(), *self.held_back]

    @property
    def files(self) -> list[str]:
        """The files that prompts are judged on, each once."""
        return list(dict.fromkeys(name for one in (*self.sampled, *self.held_back) for name in files_of(one)))


def read_prompts(
    plan: Plan, settings: RftConfig, allowed: Permissions, report: Reporter, *, were_judged: bool = False
) -> Prompts:
    """Read the prompts and part them, and find out whether answers to them can be judged, before any model is loaded.

    were_judged: an earlier start of the run found that out, so that one prompt of each judge is enough.

    Raises InputError: rows at fault, prompts that the expert's own cases or the held-back ones ask as well, prompts that cannot
    be parted; EnvironmentProblem: a judge is missing on this machine.
    """
    prompts = parted(settings, plan.run.seed).shown(plan.run.data.schema_prompt)
    of_run = prompts.of_run(settings, plan.run.seed)
    if plan.own_cases.is_file():
        own = shown_databases(read_cases(plan.own_cases), plan.run.data.schema_prompt)
        _require_apart(of_run, own, f"cases of {plan.own_cases}")
    _require_apart(prompts.sampled, prompts.held_back, "held-back prompts")
    if were_judged:
        of_run = list({one.case.verifier: one for one in of_run}.values())
    check_gradable(of_run, report, remedy='train without rounds: "method": "sft"', allowed=allowed)
    if any(one.case.can_be_forged for one in of_run):
        report.warning(FORGED)
    report.info(
        f"prompts   {len(prompts.sampled):,} to draw answers to, {len(prompts.held_back):,} held back: "
        f"{prompts.held_parts} of {prompts.parts} {prompts.by}"
    )
    return prompts


def parted(settings: RftConfig, seed: int) -> Prompts:
    """Read the prompts, and part them from what judges the rounds. Raises InputError: rows at fault, or no such parts."""
    prompts = read_cases(settings.prompts)
    if settings.held_back_cases is None:
        return part(prompts, settings.held_back, seed)
    return beside(prompts, read_cases(settings.held_back_cases))


def beside(prompts: Sequence[EvalCase], cases: Sequence[EvalCase]) -> Prompts:
    """Let other cases judge the rounds. Raises InputError where one is judged on a file that a prompt is judged on."""
    sampled = {name for one in prompts for name in _worlds(one)}
    both = [one for one in cases if not sampled.isdisjoint(_worlds(one))]
    if both:
        file = next(name for name in _worlds(both[0]) if name in sampled)
        raise InputError(
            f"{len(both)} of {len(cases)} held-back cases are on files of prompts: {both[0].where} is judged on {file}",
            "cases of files that no prompt names, or a share: training.rft.held_back",
        )
    by = BY_FILE if sampled else BY_CATEGORY
    held, asked = (
        {name for one in side for name in (_worlds(one) if sampled else (one.case.category,))}
        for side in (cases, prompts)
    )
    return Prompts(tuple(prompts), tuple(cases), by, len(held | asked), len(held))


def part(cases: Sequence[EvalCase], share: float, seed: int) -> Prompts:
    """Hold back a share of the files, drawn by the seed; of the categories where prompts name no file, or all name one.

    Raises InputError where all of them share one file and one category.
    """
    groups, by = _by_file(cases), BY_FILE
    if len(set(groups)) < 2:
        groups, by = [one.case.category for one in cases], BY_CATEGORY
    names = list(dict.fromkeys(groups))
    if len(names) < 2:
        raise InputError(
            f"{cases[0].where.rpartition(':')[0]}: all prompts share one {'file' if _worlds(cases[0]) else 'category'}: none "
            "can be held back to judge the rounds",
            'give prompts of several databases, or name their "category"',
        )
    count = max(1, min(len(names) - 1, round(share * len(names))))
    held = set(random.Random(seed).sample(names, count))  # noqa: S311
    parted = [
        [one for one, name in zip(cases, groups, strict=True) if (name in held) == back] for back in (False, True)
    ]
    return Prompts(tuple(parted[0]), tuple(parted[1]), by, len(names), count)


def _by_file(cases: Sequence[EvalCase]) -> list[str]:
    """Return for every case the name of its part: cases that share a file, if only through others, share a part."""
    leads: dict[str, str] = {}

    def find(name: str) -> str:
        while leads.setdefault(name, name) != name:
            name = leads[name]
        return name

    for one in cases:
        first, *rest = _worlds(one) or ("",)
        for other in rest:
            leads[find(other)] = find(first)
    return [find((_worlds(one) or ("",))[0]) for one in cases]


def files_of(case: EvalCase) -> tuple[str, ...]:
    """Return the files that a case is judged on."""
    return (str(case.file), *case.case.file_names[1:]) if case.file else ()


def _worlds(case: EvalCase) -> tuple[str, ...]:
    """Return those of them that it asks about: a program that judges answers may judge all."""
    return () if case.case.starts == "command" else files_of(case)


def _require_apart(prompts: Sequence[EvalCase], others: Sequence[EvalCase], name: str) -> None:
    """Raise InputError where prompts ask what others ask, small and capital letters and blanks left aside.

    A question about another database, which is shown, is another one.
    """
    held_asked, asked = (
        asked_by_cases([replace(one, input=one.asked.input) for one in cases]) for cases in (others, prompts)
    )
    held = HeldOut(held_asked)
    found = ((prompts[n], others[other]) for n, one in enumerate(asked) for other in held.find(one.asked, one.input))
    both = list({id(one): (one, other) for one, other in found if one is not other}.values())
    if both:
        one, other = both[0]
        shown = f"{one.where} asks what {other.where} asks" if one.where != other.where else one.where
        raise InputError(f"{len(both)} of {len(prompts)} prompts are {name}, too: {shown}", HINT)
