"""What a training run came to, as `train --json` prints it and as a person reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.config.run_config import RunConfig
from expert_cli.config.run_identity import PROGRAMS, STORE, identity, require_goes_on
from expert_cli.data.sources import Located, LocatedData, content_of, locate_data
from expert_cli.data.store.lookup import store_key
from expert_cli.data.store.store_files import FileHashCache, file_hashes
from expert_cli.errors import ExpertError, IntegrityError
from expert_cli.model.kernels.kernel_plan import KernelPlan
from expert_cli.runs.fit_result import FitResult, mean_span
from expert_cli.runs.metrics import forgotten_in_words, items, part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.redaction import redact
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import duration, shortened

if TYPE_CHECKING:
    from expert_cli.runs.signals import StopRequest


LONGEST_ANSWER = 220
"""Characters of a text that the summary of a run shows."""


@dataclass(frozen=True)
class SampleAnswer:
    """One prompt, answered by the base model and by the expert. right_*: None where the answers were not run."""

    prompt: str
    expected: str
    before: str
    after: str
    right_before: bool | None
    right_after: bool | None

    def lines(self) -> list[str]:
        """Return a line for each text, long ones cut."""
        marks = {None: "", True: "right: ", False: "wrong: "}
        before, after = marks[self.right_before] + self.before, marks[self.right_after] + self.after
        shown = {"prompt": self.prompt, "expected": self.expected, "before": before, "after": after}
        return [f"{name:9} {shortened(' '.join(text.split()), LONGEST_ANSWER)}" for name, text in shown.items()]


@dataclass(frozen=True)
class RunResult:
    """What `train` leaves and prints: the document of `train --json` (docs/INTERFACE.md), report.json of the run directory.

    missed: which threshold was missed, in words with both values; "" for none. unserved: what asked the run to stop when there
    was no step left: whoever makes more than one run begins no other.
    """

    output: Path
    document: Mapping[str, Any]
    missed: str = ""
    unserved: StopRequest | None = None

    def summary(self) -> str:
        """Return the lines a person reads at the end."""
        done = self.document
        loss, shares = done["loss"], done["step_time_shares"]
        span = mean_span(done["steps"])
        means = f"means of the first and last {span}" if span > 1 else "first and last"
        speed = f"{duration(done['seconds'])}, {done['tokens_per_s']:,.0f} real tokens/s"
        lines = [
            f"loss {loss['first_mean']:.3f} -> {loss['last_mean']:.3f} ({means} of {done['steps']} steps), {speed}, "
            f"peak memory {done['peak_memory_mb'] / 1024:.1f} GB"
        ]
        if shares:
            told = [f"{name.replace('_', ' ')} {share:.1%}" for name, share in shares.items() if share >= 0.0005]
            lines.append(f"time      {', '.join(told)}")
        if done["eval_loss"] is not None:
            of_sets = ", ".join(f"{name} {loss:.3f}" for name, loss in done.get("eval_losses", {}).items())
            lines.append(f"evaluation loss {done['eval_loss']:.3f}" + (f" ({of_sets})" if of_sets else ""))
        forgotten = forgotten_in_words(done.get("forgetting"))
        lines += [f"forgotten {forgotten}"] if forgotten else []
        lines += _sample_lines([SampleAnswer(**sample) for sample in done.get("samples", ())])
        lines += _round_lines(done["rft"]) if "rft" in done else []
        return "\n".join([*lines, f"adapter   {self.output / 'adapter'}", f"ended     {done['stop_reason']}"])


def _round_lines(told: Mapping[str, Any]) -> list[str]:
    """Return a line a round of learning from answers that were run: what was right, and what the held-back prompts say."""
    lines = [f"before    {_held_back(told['before'])}"]
    for one in told["rounds"]:
        line = f"round {one['round']}   {one['right']:,} of {one['asked']:,} answers right, {one['kept']:,} kept"
        if "gain" in one:
            low, high = one["gain"]["ci95"]
            line += f"; {_held_back(one)}, {one['gain']['difference']:+.1%} ({low:+.1%} to {high:+.1%})"
        lines.append(line)
    return lines


def _held_back(share: Mapping[str, Any]) -> str:
    low, high = share["ci95"]
    return (
        f"held back {share['correct']:,} of {share['cases']:,} right: {share['accuracy']:.1%} ({low:.1%} to {high:.1%})"
    )


def document(
    output: Path,
    done: FitResult,
    store: dict[str, Any],
    kernels: KernelPlan,
    sha256: str,
    resumed_from: Path | None,
    samples: Sequence[SampleAnswer],
    seconds: float,
) -> dict[str, Any]:
    """Return what `train --json` prints."""
    first, last = done.mean_losses()
    return {
        "output": str(output),
        "steps": done.steps,
        "epochs": done.epochs,
        "loss": {"first": done.losses[0], "last": done.losses[-1], "first_mean": first, "last_mean": last},
        "eval_loss": done.eval_loss,
        **({"eval_losses": dict(done.eval_losses)} if done.eval_losses else {}),
        "tokens": {"real": done.real_tokens, "trained": done.trained_tokens, "padded": done.padded_tokens},
        "tokens_per_s": done.here.tokens_per_s,
        "mfu": done.mfu,
        "mfu_peak": done.peak,
        "step_time_shares": dict(done.step_time_shares),
        "store": store,
        "kernels": kernels.as_json(),
        "adjusted": list(done.adjusted),
        "resumed_from": str(resumed_from) if resumed_from else None,
        "adapter_sha256": sha256,
        "seconds": seconds,
        "peak_memory_mb": done.peak_memory_mb,
        "samples": [asdict(sample) for sample in samples],
        "stop_reason": done.stop_reason,
    }


def finished(run: RunConfig, drift: Collection[str], report: Reporter) -> RunResult | None:
    """Return the result of the run in the output folder if it is complete, else None. drift: keys that may differ.

    Data that is not what the run was trained on is told: the result can be had all the same, also when the data has gone.
    Raises IntegrityError if its adapter is not what it was, or if it was trained with other settings than these.
    """
    paths = RunPaths(run.output)
    if not paths.complete.is_file():
        return None
    document = read_json(paths.report_json)
    wrote = str(document.get("adapter_sha256", ""))
    if not wrote:
        raise IntegrityError(
            f"{paths.report_json} of a complete run is missing or damaged", "train again with --overwrite"
        )
    weights = paths.adapter / "adapter_model.safetensors"
    if not weights.is_file() or sha256_of(weights) != wrote:
        raise IntegrityError(
            f"{weights} is not the adapter that this run wrote ({wrote[:12]})", "train again with --overwrite"
        )
    recorded = part(read_json(paths.run_json), "identity")
    if recorded:
        require_goes_on(paths.run_json, recorded, _with_its_files(run, recorded), drift, report)
    _tell_other_data(run, part(read_json(paths.run_json), "data", "files"), report)
    return RunResult(run.output, document)


def _with_its_files(run: RunConfig, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity that a run of these settings has if files and programs are those of the recorded one."""
    store = part(recorded, STORE)
    sources = (tuple(Located(spec, ()) for spec in specs) for specs in (run.data.train, run.data.validation))
    tokenizer, template = (str(recorded.get(name)) for name in ("tokenizer", "template"))
    places = LocatedData(*sources), FileHashCache(run.output / ".none")
    key = store_key(run.data, *places, tokenizer=tokenizer, template=str(store.get("template", template)))
    contents = {name: store[name] for name in ("rule", "train data", "validation data") if name in store}
    now = identity(
        run,
        files=items(recorded, "data"),
        store=dict(key.parts) | contents,
        trusted=store.get("trusted", ""),
        base=str(recorded.get("base model")),
        template=template,
        processes=recorded.get("processes", 1),
        versions=items(recorded, "versions"),
    )
    return now | {name: recorded[name] for name in PROGRAMS if name in recorded}


def _tell_other_data(run: RunConfig, recorded: Mapping[str, Any], report: Reporter) -> None:
    """Say which data files are not those that a run was trained on, or that this is not known.

    recorded: their hashes, by path.
    """
    specs = (*run.data.train, *run.data.validation)
    # A hub would be downloaded from; a storage is asked for versions alone.
    offline = run.data.offline or all(spec.kind != "url" for spec in specs)
    try:
        located = locate_data(replace(run.data, offline=offline), NullReporter()).files()
        hashes = file_hashes(run.store)
        now = {redact(str(file)): content_of(file, hashes.sha256) for file in located}
    except (ExpertError, OSError) as error:
        report.warning(f"whether the data is what this run was trained on is not known: {error}")
        return
    other = [
        f"{name} ({'new' if name not in recorded else 'changed' if name in now else 'not there'})"
        for name in {**recorded, **now}
        if recorded.get(name) != now.get(name)
    ]
    if other and recorded:
        more = f" and {len(other) - 5} more" if len(other) > 5 else ""
        told = f"not the data that this run was trained on: {', '.join(other[:5])}{more}"
        report.warning(f"{told}; --overwrite trains anew")


def _sample_lines(samples: Sequence[SampleAnswer]) -> list[str]:
    lines = [line for sample in samples for line in sample.lines()]
    run = [sample for sample in samples if sample.right_before is not None and sample.right_after is not None]
    if run:
        before, after = sum(bool(one.right_before) for one in run), sum(bool(one.right_after) for one in run)
        told = f"{len(run)} held-out cases, drawn by the seed and run: {before} right before training, {after} after"
        lines.append(f"answers   to {told}")
    return lines
