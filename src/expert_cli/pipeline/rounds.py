"""Rejection-sampling fine-tuning (`method` rft): train, sample answers, judge, train on right ones, keep adapters that gain.

OUT/sft/                      the first training, a run directory; missing with --from
OUT/round-0/evaluation.json   the first adapter's answers to the held-back prompts
OUT/round-1/samples.json      the sampled answers with their verdicts
OUT/round-1/rows.jsonl        the answers to train on, each with its prompt, round and sample
OUT/round-1/run/              the training on these rows, a run directory
OUT/round-1/evaluation.json   its adapter's answers to the held-back prompts
OUT/adapter/, run.json, ...   the best adapter, in the files of every run directory

A step is not repeated if its file exists for the same adapter, settings and prompts.
"""

from __future__ import annotations

import gc
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.adapter_origin import WEIGHTS, find_adapter
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.config.run_config import AUTO, RunConfig, SourceSpec
from expert_cli.config.run_identity import require_same
from expert_cli.data.rows import asked_hash
from expert_cli.data.templates.chat import Template
from expert_cli.errors import InputError, Interrupted
from expert_cli.evaluation.cases import Cases, EvalCase, digest_of, read_cases, shown_databases
from expert_cli.evaluation.evaluate import check_gradable, evaluate_adapter, longest_right_answer
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.grade import Permissions
from expert_cli.evaluation.verifiers.case import FORGED
from expert_cli.hardware.devices import DEVICES
from expert_cli.inference.expert_config import NEW_TOKENS, decoding_for, generation_config
from expert_cli.inference.vote import same_as
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.pipeline.run_directory import RunResult, Work, begin_run, finish, identity_of, write_run_json
from expert_cli.pipeline.training_data import DataInputs, resolve_inputs
from expert_cli.runs.log import RunLog
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import StopRequest
from expert_cli.utils.files import json_lines, remove, sha256_of, sync_folder, write_bytes, write_json
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Paired
from expert_cli.utils.text import plural

RIGHT, WHOLE, EXPECTED = "correct", ("end", "sequence"), "expected"
"""The verdict on answers to train; the reasons why a complete answer ends (the end of a truncated one must not be trained);
the value of "sample" for an expected answer, which has no sample number."""
Document = Mapping[str, Any]


def train_in_rounds(work: Work, train_one: Callable[[Work], RunResult]) -> RunResult:
    """Train, then sample answers, judge them and train on right ones, in rounds; write the best adapter as a run."""
    plan, report, options, processes = work.plan, work.report, work.options, work.job.num_processes
    started, run, settings, paths = time.monotonic(), plan.run, plan.run.rft, RunPaths(plan.run.output)
    if settings is None or processes > 1:
        raise InputError(f"method rft runs in one process, not in {processes}", "start one")
    if options.max_forget is not None:
        raise InputError("--max-forget does not go with method rft: no round measures it", "train with method sft")
    if options.resume not in ("", AUTO):
        raise InputError(f"--resume {options.resume}: a run in rounds has no checkpoints of its own", "--resume auto")
    first = _run_of(run.adapter.init_adapter) if run.adapter.init_adapter else None
    sampled, held_back, held = read_prompts(plan, settings, options.permissions, report)
    inputs = resolve_inputs(run, report)
    read = [settings.prompts, *filter(None, [settings.held_back_cases])]
    read += dict.fromkeys(one.file for one in (*sampled, *held_back) if one.file)
    what = identity_of(work, inputs, more_files=[sha256_of(path) for path in read])
    if options.locked is not None:
        require_same(options.locked, what, report)
    begin_run(work)
    write_run_json(work, inputs, what, resumed_from=str(run.output) if paths.run_json.is_file() else "", more={})
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)  # a resumed run may begin with generation
    judged, records, ended = _Steps(work, inputs, train_one).make(settings, first, sampled, held_back)
    best = max(judged, key=lambda one: float(one["accuracy"]))  # the first of equal ones
    of_best, number = RunPaths(best["run"]), best["round"]
    told = {"held_back": held, "before": _share(judged[0]), "rounds": records, "best_round": number, "ended": ended}
    remove(paths.adapter)
    shutil.copytree(of_best.adapter, paths.adapter)
    sync_folder(paths.adapter)
    if of_best.metrics.is_file():
        write_bytes(paths.metrics, of_best.metrics.read_bytes())
    its, kept = read_json(of_best.run_json), ("kernels", "template", "store")
    more = {name: its[name] for name in kept if name in its} | {"rft": told}
    more |= {name: read_json(paths.run_json)[name] for name in ("started", "resumes")}
    write_run_json(work, inputs, what, resumed_from="", more=more)
    reason = f"{ended}; the adapter is that of {f'round {number}' if number else 'before the rounds'}"
    found = read_json(of_best.report_json) | {"output": str(run.output), "resumed_from": None, "rft": told}
    found |= {"seconds": time.monotonic() - started, "stop_reason": reason}
    return finish(work, found)


def _run_of(adapter: Path) -> Path:
    """Return the run directory of an adapter. Raises InputError if it has none, or is a checkpoint."""
    origin = find_adapter(adapter)
    if origin.run is None or not origin.sealed:
        raise InputError(f"{adapter}: is not the adapter of a complete run", "rounds start from one: --from RUN")
    return origin.run


def _training(run: RunConfig, settings: RftConfig, rows: Path, last: Path) -> RunConfig:
    """Return the configuration of a round's training: its rows, and a share of the first training's rows."""
    share = settings.replay
    old = [replace(one, weight=one.weight * share) for one in run.data.train]
    data = replace(run.data, train=(SourceSpec("file", str(rows), as_asked=True), *(old if share else ())))
    start = find_adapter(last).adapter if settings.start == "last" else None
    # the stores of rounds are not uploaded
    return replace(run, data=data, adapter=replace(run.adapter, init_adapter=start), store_url="")


def read_prompts(
    plan: Plan, settings: RftConfig, allowed: Permissions, report: Reporter
) -> tuple[Cases, Cases, dict[str, Any]]:
    """Return the prompts to sample answers for, the held-back prompts, and how they were split. All can be judged."""
    shown, (*sides, held) = plan.run.data.schema_prompt, parted(settings, plan.run.seed)
    sampled, held_back = (shown_databases(side, shown) for side in sides)
    every = [*sampled, *held_back]
    if plan.own_cases.is_file():
        require_apart(every, shown_databases(read_cases(plan.own_cases), shown), f"cases of {plan.own_cases}")
    require_apart(sampled, held_back, "held-back prompts")
    check_gradable(every, report, allowed)
    if any(one.case.can_be_forged for one in every):
        report.warning(FORGED)
    told = "prompts   {:,} to draw answers to, {prompts:,} held back: {parts} of {of} {by}"
    report.info(told.format(len(sampled), **held))
    return sampled, held_back, held


def parted(settings: RftConfig, seed: int) -> tuple[Cases, Cases, dict[str, Any]]:
    """Read and split the prompts: held back is another file, or a share of the databases (or categories), drawn by the seed."""
    cases = read_cases(settings.prompts)
    others = read_cases(settings.held_back_cases) if settings.held_back_cases else []
    every, by = [*cases, *others], "files that prompts are judged on"
    # one program may judge all cases, so it does not split them
    groups = [str(one.file or "") if one.case.starts != "command" else "" for one in every]
    asked = {*groups[: len(cases)]}
    both = [one.where for one, of in zip(others, groups[len(cases) :], strict=True) if of in asked - {""}]
    if both:
        told = f"{len(both)} of {len(others)} held-back cases are on files of prompts: {both[0]}"
        raise InputError(told, "cases of files that no prompt names, or a share: training.rft.held_back")
    if len({*groups}) < 2:
        groups, by = [one.case.category for one in every], "categories of prompts"
    names, held = list(dict.fromkeys(groups)), {*groups[len(cases) :]}
    if not others:
        if len(names) < 2:
            told = f"{settings.prompts}: all prompts have the same file and category, so none can be held back"
            raise InputError(told, 'give prompts of several databases, or name their "category"')
        count = max(1, min(len(names) - 1, round(settings.held_back * len(names))))
        held = {*random.Random(seed).sample(names, count)}  # noqa: S311
        others = [one for one, of in zip(every, groups, strict=True) if of in held]
        cases = [one for one, of in zip(every, groups, strict=True) if of not in held]
    return cases, others, {"prompts": len(others), "parts": len(held), "of": len(names), "by": by}


def require_apart(prompts: Cases, others: Cases, name: str) -> None:
    """Raise InputError if prompts and `others` share questions; about another database, the same text is another question."""
    here, there = ({asked_hash(one.prompt, one.asked[1]): one.where for one in side} for side in (prompts, others))
    if both := {where: there[asked] for asked, where in here.items() if asked in there}:
        told = f"{len(both)} of {len(prompts)} prompts are {name}, too: {' asks what '.join(next(iter(both.items())))} asks"
        raise InputError(told, "remove them: evaluation cases must not be trained")


def row_of(case: EvalCase, answer: str, sample: int | str, template: Template) -> dict[str, Any]:
    """Return the training row of an answer, with its question as it was asked, and the input under the same heading."""
    prompt, input_ = case.asked
    heading = "schema" if "Schema" in template.input_separator else "input"
    return {"instruction": prompt, heading: input_, "output": answer, "case": case.id, "sample": sample}


def select(cases: Cases, drawn: Document, settings: RftConfig) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the answers to train with their cases, and counts. Each case: different right answers, then the expected one."""
    chosen, right = list[dict[str, Any]](), 0
    for case, samples in zip(cases, (one["samples"] for one in drawn["answers"]), strict=True):
        passed = [(n, one) for n, one in enumerate(samples, start=1) if one["kind"] == RIGHT]
        whole = [(n, one["answer"].strip()) for n, one in passed if one["stop"] in WHOLE]
        found = dict[str, dict[str, Any]]()
        for sample, answer in whole:
            if len(found) < settings.keep:
                said = same_as(extract(answer, case.case.fences))
                found.setdefault(said, {"case": case, "answer": answer, "sample": sample})
        is_asked = settings.gold == "always" or (settings.gold == "failed" and not passed)
        if is_asked and (text := case.case.expected_text):
            found.setdefault(same_as(text), {"case": case, "answer": text, "sample": EXPECTED})
        chosen += found.values()
        right += len(passed)
    golden = sum(one["sample"] == EXPECTED for one in chosen)
    figures = {"prompts": len(cases), "samples": settings.samples, "asked": settings.samples * len(cases)}
    return chosen, {**figures, "right": right, "kept": len(chosen) - golden, "expected": golden}


def _share(judged: Document) -> dict[str, Any]:
    return {name: judged[name] for name in ("cases", "correct", "accuracy", "ci95")}


@dataclass(frozen=True)
class _Steps:
    work: Work
    inputs: DataInputs
    train_one: Callable[[Work], RunResult]

    def make(
        self, settings: RftConfig, first: Path | None, sampled: Cases, held_back: Cases
    ) -> tuple[list[Document], list[dict[str, Any]], str]:
        """Return the evaluations of the kept adapters, a record for each round, and why no further round was made."""
        run, records = self.work.plan.run, list[dict[str, Any]]()
        judged = [self.judge(0, first or self.train("first training", run.output / "sft", run), held_back)]
        for number in range(1, settings.rounds + 1):
            last, folder, name = judged[-1], run.output / f"round-{number}", f"round {number}"
            most = min(settings.limit or len(sampled), len(sampled))
            places = random.Random(f"{run.seed} {number}").sample(range(len(sampled)), most)  # noqa: S311
            cases = [sampled[place] for place in sorted(places)]
            how: dict[str, Any] = {"samples": settings.samples, "temperature": settings.temperature}
            file, seed = folder / "samples.json", run.seed + number
            drawn = self.answers(f"{name}, sampling", file, last["run"], cases, seed=seed, **how)
            chosen, figures = select(cases, drawn, settings)
            records.append({"round": number, **figures, "is_kept": False})
            self.work.report.info(name + "   {right:,} of {asked:,} answers right, {kept:,} kept".format(**figures))
            if not chosen:
                return judged, records, f"{name}: no whole answer is right: train the first stage for longer"
            rows = [row_of(**one, template=self.inputs.template) | {"round": number} for one in chosen]
            file, raw = folder / "rows.jsonl", json_lines(rows)
            if not file.is_file() or file.read_bytes() != raw:
                remove(folder / "run")  # a training on other rows
                write_bytes(file, raw)
            trained = self.train(f"{name}, training", folder / "run", _training(run, settings, file, last["run"]))
            now = self.judge(number, trained, held_back)
            before, after = ([one["kind"] == RIGHT for one in judged["answers"]] for judged in (last, now))
            gain = Paired.of(before, after).rise()
            records[-1] |= {**_share(now), "gain": {**gain, "against": last["round"]}}
            (low, high), rise = gain["ci95"], gain["difference"]
            self.work.report.info(f"gain      {rise:+.1%} ({low:+.1%} to {high:+.1%})")
            if low <= 0 and settings.stop_without_gain:
                why = f"a gain of {rise:+.1%} ({low:+.1%} to {high:+.1%}) on held-back prompts is not significant"
                return judged, records, f"{name}: {why}"
            records[-1]["is_kept"] = True
            judged.append(now)
        return judged, records, f"made {plural(settings.rounds, 'round')}"

    def at(self, stage: str) -> None:
        """Set the current stage and free memory. Raises Interrupted if there is a file STOP."""
        self.work.status.at(stage)
        self.work.report.info(f"stage     {stage}")
        gc.collect()
        DEVICES[self.work.plan.run.compute.device].empty_cache()
        stop = StopRequest(self.work.plan.run.output)
        if stop.asked():
            told = f"stopped by {stop.reason} in {stage}"
            raise Interrupted(told, f"go on: {self.work.status.go_on}", stop.exit_code, by_signal=False)

    def train(self, stage: str, folder: Path, run: RunConfig) -> Path:
        """Start or continue an ordinary run, unless it is complete; return its folder."""
        self.at(stage)
        asked = self.work.options
        drift = tuple(key for key in asked.allow_drift if not key.startswith("rft."))
        trusted = asked.trust_store and run is self.work.plan.run
        options = replace(asked, resume=AUTO, overwrite=False, locked=None, max_forget=None, allow_drift=drift)
        options = replace(options, trust_store=trusted)
        plan = replace(self.work.plan, run=replace(run, output=folder, rft=None))
        self.train_one(replace(self.work, plan=plan, options=options, log=RunLog()))
        return folder

    def answers(self, stage: str, file: Path, adapter: Path, cases: Cases, samples: int = 0, **how: Any) -> Document:
        """Return an adapter's answers to cases, as in `evaluate --json`; from the file if it contains them."""
        self.at(stage)
        trained = TrainedAdapter(self.work.plan, find_adapter(adapter), named=True)
        decoding = decoding_for(trained)
        room = max(NEW_TOKENS, longest_right_answer(self.inputs.renderer, cases) + 1)
        device = trained.plan.run.compute.device
        settings = replace(generation_config(decoding, room, samples=samples, device=device), **how)
        same = {"adapter": sha256_of(trained.origin.adapter / WEIGHTS), "settings": asdict(settings)}
        key = digest_of({**same, "cases": [(one.digest, one.shown) for one in cases]})
        if read_json(file).get("key") != key:
            file.parent.mkdir(parents=True, exist_ok=True)
            found = evaluate_adapter(trained, cases, settings, self.work.report, self.work.options.permissions)
            write_json(file, {"key": key, **found.as_json()})
        return read_json(file)

    def judge(self, number: int, adapter: Path, held_back: Cases) -> Document:
        """Let an adapter answer the held-back prompts greedily; return its evaluation.json, its round and its run."""
        stage = f"round {number}, judging" if number else "judging the first adapter"
        file = self.work.plan.run.output / f"round-{number}" / "evaluation.json"
        found = self.answers(stage, file, adapter, held_back, num_beams=1)
        self.work.report.info("held back {correct:,} of {cases:,} right: {accuracy:.1%}".format(**found))
        return {**found, "round": number, "run": adapter}
