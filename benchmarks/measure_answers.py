"""Ask experts with their grammar and without, once and several times, and print the tables of docs/BENCHMARKS.md.

    python -m benchmarks.measure_answers OUT --run RUN "own worlds=experts/expert-sql/tests/cases.jsonl" --samples 8

The expert of a run directory is asked each set of cases (TITLE=FILE): greedily, with the grammar of the cases' language and
without, in turn for some cases at a time, so that whatever else the machine does slows both alike; with --samples so many times
each, both ways. What the manifest says of a grammar is not asked. Nothing is written into the run directory. Each part of the
work leaves a file below OUT, with every answer; what stands there, asked as it would be now, is not asked again, and work that
was broken off goes on. The tables at the end are those of all files there, also without --run:

    RUN-TITLE-greedy.json     answers with the grammar and without; of some cases at a time the tokens and seconds of both
    RUN-TITLE-with.json       --samples answers to each case, held to the grammar
    RUN-TITLE-without.json    the same, held to nothing
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from expert_cli.config.plan import trained_adapter
from expert_cli.evaluation.cases import Answer, EvalCase
from expert_cli.evaluation.evaluate import Answering, cases_of, check_gradable, write_answers
from expert_cli.evaluation.grade import CASE_TIMEOUT_S, grade
from expert_cli.inference.expert import Expert, open_expert
from expert_cli.inference.expert_config import GenerationConfig, Grammar, Stop, decoding_for, generation_config
from expert_cli.manifest.key import GrammarType
from expert_cli.utils.files import sha256_of, write_json
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.statistics import paired_ratio

GRAMMARS: dict[str, GrammarType] = {
    "sql": "sql",
    "cypher": "cypher",
    "json": "json-schema",
}
"""The verifier of a case -> what answers are held to."""
BATCHES = 2
"""So many batches are answered with the grammar before they are answered without."""
TRIES = ("1", "4", "8")
Row = dict[str, Any]
T = TypeVar("T")


class Measured:
    """A run directory; its model is loaded when it is first asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Find the run. Raises InputError."""
        self.options = options
        self.trained = trained_adapter(options.run, options.manifest, None, offline=True)

    @cached_property
    def expert(self) -> Expert:
        """The model."""
        prepare_process()
        return open_expert(self.trained.plan.run, self.trained.origin, NullReporter())

    def settings(self, samples: int, grammar: Grammar | None) -> GenerationConfig:
        """Return how answers are written: as the manifest says but for the grammar."""
        decoding = decoding_for(self.trained)
        longest, device = self.options.max_new_tokens, self.trained.plan.run.compute.device
        settings = generation_config(decoding, longest, samples=samples, device=device)
        return replace(settings, grammar=grammar)

    def asked(self, title: str, file: Path, cases: Sequence[EvalCase]) -> Row:
        """Return what a result is of."""
        return {
            "run": self.options.name or self.options.run.resolve().name,
            "adapter_sha256": sha256_of(self.trained.origin.adapter / "adapter_model.safetensors"),
            "title": title,
            "cases_sha256": sha256_of(file),
            "cases": len(cases),
            "max_new_tokens": self.options.max_new_tokens,
        }

    def greedy(self, cases: Sequence[EvalCase], grammar: Grammar, kept: Kept) -> Row:
        """Answer all cases with the grammar and without, in turn."""
        ways = {"with": self.settings(0, grammar), "without": self.settings(0, None)}
        rows, parts = self._all(cases, ways, kept)
        held, free = (grade(rows[way], NullReporter(), CASE_TIMEOUT_S) for way in ways)
        return {
            "grammar": grammar.type,
            "unknown_names": {
                "with": held.as_json()["failures"].get("unknown_name", 0),
                "without": free.as_json()["failures"].get("unknown_name", 0),
            },
            "with": held.as_json(),
            "without": free.beside(held, {}),
            "parts": parts,
        }

    def sampled(self, cases: Sequence[EvalCase], grammar: Grammar | None, kept: Kept) -> Row:
        """Answer all cases several times."""
        settings = self.settings(self.options.samples, grammar)
        rows, parts = self._all(cases, {"drawn": settings}, kept)
        found = grade(rows["drawn"], NullReporter(), CASE_TIMEOUT_S)
        told = {"grammar": grammar.type if grammar else None, "temperature": settings.temperature}
        return {**told, **found.as_json(), "parts": parts}

    def _all(
        self, cases: Sequence[EvalCase], ways: Mapping[str, GenerationConfig], kept: Kept
    ) -> tuple[dict[str, list[EvalCase]], list[Row]]:
        """Return the answers of each way to all cases, and what they cost, some cases at a time; those that are kept are."""
        rows: dict[str, list[EvalCase]] = {way: [] for way in ways}
        parts = list(parts_of(cases, BATCHES * min(one.batch_size for one in ways.values())))
        for number, some in enumerate(parts):
            if number == len(kept.parts):
                order = list(ways)[:: 1 if number % 2 else -1]
                kept.add({way: self._asked(some, ways[way]) for way in order})
            for way in ways:
                rows[way] += map(_restored, some, kept.parts[number][way]["answers"])
        costs = [{way: {k: v for k, v in part[way].items() if k != "answers"} for way in ways} for part in kept.parts]
        return rows, costs

    def _asked(self, cases: Sequence[EvalCase], settings: GenerationConfig) -> Row:
        answering = Answering("", cases, settings, NullReporter())
        found = write_answers(self.expert.model, self.expert.renderer, answering)
        rows, told = [one.row for one in found.answers], found.told["generation"]
        return {
            "answers": [[(one.text, one.stop) for one in row.answers] for row in rows],
            "tokens": told["tokens"],
            "seconds": told["seconds"],
        }


def _restored(case: EvalCase, answers: Sequence[tuple[str, Stop]]) -> EvalCase:
    """Return a case with its answer, or with several."""
    return replace(case, answers=tuple(Answer(*one) for one in answers), is_sampled=len(answers) > 1)


class Kept:
    """The answers of a part of the work that is not done yet, in a file beside its result."""

    def __init__(self, path: Path, asked: Row) -> None:
        """Read what is there, asked as it would be now."""
        self._path, self._asked = path, asked
        found = read(path)
        self.parts: list[Row] = found["parts"] if found.get("asked") == asked else []

    def add(self, part: Row) -> None:
        """Keep the answers to some more cases."""
        self.parts.append(part)
        write_json(self._path, {"asked": self._asked, "parts": self.parts})


def grammar_of(cases: Sequence[EvalCase]) -> Grammar | None:
    """Return the grammar of the language of the cases; None where there is none for it."""
    case = cases[0].case
    kind = GRAMMARS.get(case.verifier)
    return Grammar(kind) if kind else None


def parts_of(cases: Sequence[EvalCase], size: int) -> Iterator[list[EvalCase]]:
    """Yield all cases, `size` at a time, those of like length together."""
    ordered = sorted(cases, key=lambda case: -len(case.prompt) - len(case.input))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def measure(options: argparse.Namespace) -> None:
    """Ask what is not among the results yet; each is written as soon as it is there."""
    measured = Measured(options)
    for said in options.sets:
        title, _, file = said.partition("=")
        cases = cases_of(measured.trained.plan, Path(file), options.limit)
        check_gradable(cases, NullReporter())
        grammar = grammar_of(cases)
        parts: dict[str, Callable[[Kept], Row]] = {}
        if grammar is not None:
            parts["greedy"] = partial(measured.greedy, cases, grammar)
        if options.samples:
            parts |= {"with": partial(measured.sampled, cases, grammar)} if grammar else {}
            parts["without"] = partial(measured.sampled, cases, None)
        for part, ask in parts.items():
            asked = measured.asked(title, Path(file), cases)
            asked |= {"part": part, "samples": 0 if part == "greedy" else options.samples}
            path = options.out / f"{asked['run']}-{title}-{part}.json".replace(" ", "_")
            if read(path).get("asked") != asked:
                print(f"{path.name} ...", flush=True)
                begun = path.with_suffix(".begun")
                write_json(path, {"asked": asked, **ask(Kept(begun, asked))})
                begun.unlink()


def read(path: Path) -> Row:
    """Return what a file holds; {} where there is none."""
    found: Row = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def results(folder: Path) -> list[Row]:
    """Return the results so far, in the order of their names."""
    return [read(path) for path in sorted(folder.glob("*.json"))]


def greedy_table(rows: Sequence[Row]) -> list[str]:
    """Return a line for every set that was asked greedily: what is right, what names are unknown, and what a token costs."""
    lines = [
        "| expert | questions | right without | right with | gained, lost | difference (95 %) | unknown names without, with "
        "| never ended without, with | tokens/s without, with | with : without (95 %) |",
        f"|{'---|' * 10}",
    ]
    for row in (one for one in rows if one["asked"]["part"] == "greedy"):
        held, free, names = row["with"], row["without"], row["unknown_names"]
        change = free["difference"]
        low, high = (100 * end for end in change["ci95"])
        sums = {
            (way, key): sum(part[way][key] for part in row["parts"])
            for way in ("without", "with")
            for key in ("tokens", "seconds")
        }
        cells = (
            row["asked"]["run"],
            row["asked"]["title"],
            f"{free['correct']} of {free['cases']}",
            f"{held['correct']} of {held['cases']}",
            f"{change['gained']}, {change['lost']}",
            f"{100 * change['difference']:+.1f} % ({low:+.1f} to {high:+.1f})",
            f"{names['without']}, {names['with']}",
            f"{_never_ended(free)}, {_never_ended(held)}",
            ", ".join(f"{sums[way, 'tokens'] / sums[way, 'seconds']:.1f}" for way in ("without", "with")),
            _ratio(row["parts"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _never_ended(found: Row) -> int:
    """Return how many answers were cut off at their longest length, or where they say one thing over and over."""
    return sum(row["stop"] in ("length", "looping") for row in found["answers"])


def _ratio(parts: Sequence[Row]) -> str:
    """Return the tokens a second with the grammar : those without, of parts that were answered one after the other."""
    rates = [[part[way]["tokens"] / part[way]["seconds"] for part in parts] for way in ("with", "without")]
    found = paired_ratio(*rates)
    ends = f" ({found.ci95[0]:.2f} to {found.ci95[1]:.2f})" if found.ci95 else ""
    return f"{found.mean:.2f}{ends}"


def samples_table(rows: Sequence[Row]) -> list[str]:
    """Return a line for every set that was asked several times, each way."""
    lines = [
        f"| expert | questions | grammar | {' | '.join(f'pass@{k}' for k in TRIES)} | majority |",
        f"|---|---|---|{'---|' * (len(TRIES) + 1)}",
    ]
    for row in (one for one in rows if one["asked"]["part"] != "greedy"):
        shares = [_share(row["pass_at"][k], row["pass_at_ci95"][k]) if k in row["pass_at"] else "" for k in TRIES]
        shares.append(_share(row["majority"], row["majority_ci95"]))
        told = [row["asked"]["run"], row["asked"]["title"], row["grammar"] or "none", *shares]
        lines.append(f"| {' | '.join(told)} |")
    return lines


def _share(value: float, ends: Sequence[float]) -> str:
    return f"{100 * value:.1f} % ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, then print the tables of all results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder outside the repository; measuring goes on there")
    parser.add_argument("sets", nargs="*", metavar="TITLE=FILE", help="cases, and what the tables call them")
    parser.add_argument("--run", type=Path, help="the run directory of an expert")
    parser.add_argument("--manifest", type=Path, help="its manifest, where the one it was trained from is gone")
    parser.add_argument("--name", help="what the tables call the expert; default: the name of its run directory")
    parser.add_argument("--samples", type=int, default=0, help="ask each case so many times as well")
    parser.add_argument("--limit", type=int, help="ask so many of every set")
    parser.add_argument("--max-new-tokens", type=int, default=512)
    options = parser.parse_args(arguments)
    if bool(options.run) != bool(options.sets):
        parser.error("--run goes with sets of cases: TITLE=FILE")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.run:
        measure(options)
    rows = results(options.out)
    print("", *greedy_table(rows), "", *samples_table(rows), sep="\n")


if __name__ == "__main__":
    main()
