"""The rounds: draw, run, train, judge on what was held back; a round is kept where its gain is certain."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from expert_cli.config.adapter_origin import WEIGHTS, find_adapter
from expert_cli.config.run_config import RunConfig, SourceSpec
from expert_cli.evaluation.answer import write_answers
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S, answer_settings, room_for_answers
from expert_cli.evaluation.grade import grade
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import decoding_of
from expert_cli.pipeline.rft.prompts import Prompts
from expert_cli.pipeline.rft.sampling import sample
from expert_cli.pipeline.rft.select import RowForm, select
from expert_cli.pipeline.rft.work import Work, free_memory
from expert_cli.runs.metrics import part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.distributed import broadcast_rank0
from expert_cli.utils.files import remove, sha256_of, write_json
from expert_cli.utils.statistics import Paired
from expert_cli.utils.text import plural

EXAMPLES = 5
"""Prompts that are shown of those learned, and of those lost."""


@dataclass(frozen=True)
class Candidate:
    """An adapter and what it answers to the held-back prompts, as its evaluation.json says. number: of its round."""

    number: int
    folder: Path
    document: Mapping[str, Any]

    @property
    def passed(self) -> list[bool]:
        """Whether each answer is right."""
        return [one["kind"] == "correct" for one in self.document["answers"]]

    @property
    def accuracy(self) -> dict[str, Any]:
        """Counts, share and interval."""
        return {name: self.document[name] for name in ("cases", "correct", "accuracy", "ci95")}


@dataclass(frozen=True)
class Rounds:
    """What was made: a record a round, the first adapter, the best one, and why no further round was made."""

    records: Sequence[Mapping[str, Any]]
    first: Candidate
    best: Candidate
    ended: str


def make_rounds(work: Work, prompts: Prompts, form: RowForm, adapter: Path) -> Rounds:
    """Make the rounds from an adapter. form: of the rows that are trained."""
    settings = work.settings
    first = best = last = judge(work, prompts, 0, adapter)
    records: list[Mapping[str, Any]] = []
    ended = f"made {plural(settings.rounds, 'round')}"
    for number in range(1, settings.rounds + 1):
        work.at(f"round {number}, sampling")
        asked = prompts.of_round(number, settings.limit, work.run.seed)
        sampled = sample(work, asked, number, last.folder)
        found = broadcast_rank0(partial(select, work, sampled, number, form))
        _tell(work, number, found.figures)
        if found.reason:
            records.append({"round": number, **found.figures, "is_kept": False})
            ended = f"round {number}: {found.reason}"
            work.report.warning(ended)
            break
        work.at(f"round {number}, training")
        broadcast_rank0(partial(_drop_other, work, number))
        done = work.train(training(work, number, last.folder))
        now = judge(work, prompts, number, done.output)
        gain = Paired.of(last.passed, now.passed).reversed
        is_certain = gain.ci95[0] > 0
        is_kept = is_certain or not settings.stop_without_gain
        record = partial(_record, number, found.figures, now, last, gain, done.document, is_kept=is_kept)
        records.append(broadcast_rank0(record))  # the first process alone has the training's document
        if is_kept and now.accuracy["accuracy"] > best.accuracy["accuracy"]:
            best = now
        if not is_kept:
            low, high = gain.ci95
            told = f"a gain of {gain.drop:+.1%} ({low:+.1%} to {high:+.1%}) on held-back prompts is not certain"
            ended = f"round {number}: {told}"
            break
        last = now
    return Rounds(records, first, best, ended)


def _drop_other(work: Work, number: int) -> None:
    """Remove a round's training that is of other rows than are kept now, which `--allow-drift` lets differ."""
    paths = work.paths(number)
    trained = part(read_json(RunPaths(paths.run).run_json), "data", "files")
    if work.options.drift and trained and sha256_of(paths.rows) not in trained.values():
        work.report.warning(f"{paths.run} trained other rows than {paths.rows} has now: it is trained anew")
        aside = paths.run.with_name(".other")
        remove(aside)
        paths.run.rename(aside)  # at once: half of it would be taken for a run
        remove(aside)


def training(work: Work, number: int, last: Path) -> RunConfig:
    """Return the training of a round: what was kept, and the first training's rows by the share that is replayed."""
    paths, data, share = work.paths(number), work.run.data, work.settings.replay
    old = tuple(_replayed(spec, share) for spec in data.train) if share else ()
    rows = SourceSpec("file", str(paths.rows))
    start = find_adapter(last).adapter if work.settings.start == "last" else None
    adapter = replace(work.run.adapter, init_adapter=start)
    return replace(work.run, output=paths.run, data=replace(data, train=(rows, *old)), adapter=adapter)


def _replayed(spec: SourceSpec, share: float) -> SourceSpec:
    most = spec.max_rows and max(1, round(spec.max_rows * share))
    return replace(spec, weight=spec.weight * share, max_rows=most)


def judge(work: Work, prompts: Prompts, number: int, adapter: Path) -> Candidate:
    """Let an adapter answer the held-back prompts, greedily, unless that was done."""
    work.at(f"round {number}, judging" if number else "judging the first adapter")
    document = broadcast_rank0(partial(_judge, work, prompts, number, adapter))
    found = Candidate(number, adapter, document)
    share = found.accuracy
    low, high = share["ci95"]
    work.report.info(
        f"held back {share['correct']:,} of {share['cases']:,} right: {share['accuracy']:.1%} ({low:.1%} to {high:.1%})"
    )
    return found


def _judge(work: Work, prompts: Prompts, number: int, adapter: Path) -> dict[str, Any]:
    origin, file = find_adapter(adapter), work.paths(number).evaluation
    weights = sha256_of(origin.adapter / WEIGHTS)
    decoding = decoding_of(work.plan.loaded.manifest)
    parts = (weights, repr(decoding), *(one.digest for one in prompts.held_back))
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    kept = read_json(file)
    judged_on = work.judged_on(prompts.held_back)
    if kept.get("key") == key and kept.get("judged_on", judged_on) == judged_on:
        return kept
    expert = open_expert(work.run, origin, work.report)
    most = room_for_answers(expert.renderer, prompts.held_back)
    settings = replace(answer_settings(work.plan, decoding, most), num_beams=1)
    written = write_answers(expert.model, expert.renderer, prompts.held_back, settings, work.report, "judging")
    del expert
    free_memory(work.run)
    evaluation = grade(written.answers, work.report, CASE_TIMEOUT_S)
    about = {
        "key": key,
        "judged_on": judged_on,
        "adapter_sha256": weights,
        "generation": {**settings.as_json(), **written.as_json()},
    }
    write_json(file, {**evaluation.as_json(), **about})
    return read_json(file)


def _tell(work: Work, number: int, figures: Mapping[str, Any]) -> None:
    tries = figures["samples"]
    pass_at = ", ".join(f"pass@{k} {share:.1%}" for k, share in figures["pass_at"].items())
    work.report.info(
        f"round {number}   {figures['right']:,} of {figures['asked']:,} answers right; {pass_at}; "
        f"{figures['kept']:,} kept, {figures['expected']:,} expected ones beside them"
    )
    if tries > 1 and not figures["differing"]:
        work.report.warning(
            f"round {number}: the {tries} answers to each prompt are the same, pass@{tries} = pass@1: drawing can not help; "
            "raise training.rft.temperature"
        )


def _record(
    number: int,
    figures: Mapping[str, Any],
    now: Candidate,
    last: Candidate,
    gain: Paired,
    trained: Mapping[str, Any],
    *,
    is_kept: bool,
) -> dict[str, Any]:
    """Return what report.json says of a round. gain: against the adapter that drew the answers. trained: its training's."""
    pairs = list(zip(last.document["answers"], now.document["answers"], strict=True))
    learned, lost = (
        [
            _example(old, new)
            for old, new in pairs
            if (old["kind"], new["kind"]).count("correct") == 1 and (new["kind"] == "correct") == is_learned
        ]
        for is_learned in (True, False)
    )
    return {
        "round": number,
        **figures,
        **now.accuracy,
        "gain": {
            "gained": gain.lost,
            "lost": gain.gained,
            "difference": gain.drop,
            "ci95": list(gain.ci95),
            "against": last.number,
        },
        "is_kept": is_kept,
        "learned": learned[:EXAMPLES],
        "forgotten": lost[:EXAMPLES],
        "training": {name: trained[name] for name in ("steps", "loss", "tokens", "seconds", "adapter_sha256")},
    }


def _example(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    question = old["question"] or {}
    asked = {
        "id": old["id"],
        "prompt": question.get("prompt"),
        "input": question.get("input"),
        "expected": old["expected"],
    }
    return {
        **asked,
        "before": old["answer"],
        "after": new["answer"],
        "why": (old if new["kind"] == "correct" else new)["detail"],
    }
