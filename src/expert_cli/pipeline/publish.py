"""An evaluation's result goes in; it is left where people look for it: the run's evaluation.json and report, the model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expert_cli.artifacts.model_card import put_results, put_section
from expert_cli.artifacts.report import write_report
from expert_cli.config.adapter_origin import AdapterOrigin
from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.console.terminal import SCHEMA_VERSION
from expert_cli.evaluation.grade import Evaluated
from expert_cli.runs.metrics import BASES, base_title, grammar_in_words, sample_shares
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import write_json
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import short_place

SECTION = "Evaluation"


def leave(found: Evaluated, trained: TrainedAdapter | None, output: Path | None, report: Reporter) -> None:
    """Write the document where it is asked for, and where it belongs: the adapter's run and card, and the run's report.

    Of a part of the expert's cases, or of others than its own, it goes only where it is asked for.
    """
    document = {"schema_version": SCHEMA_VERSION, "command": "evaluate", **found.as_json()}
    if output is not None:
        write_json(output, document)
        report.info(f"written   {output}")
    if trained is None:
        return
    if not is_whole(document, trained.plan):
        report.info("not the expert's own cases, or not all: evaluation.json, model card and report stay as they are")
        return
    run = publish(document, trained.origin)
    if run is not None:
        write_report([run], RunPaths(run).report_html)
        report.info(f"written   {RunPaths(run).evaluation}")
        report.info(f"report    {RunPaths(run).report_html}")


def is_whole(document: dict[str, Any], plan: Plan) -> bool:
    """Whether an expert answered all of its own cases; where it has none, all of those that it was given."""
    own = plan.own_cases
    return document["limit"] is None and (not own.is_file() or own.resolve() == Path(document["cases_file"]))


def publish(document: dict[str, Any], origin: AdapterOrigin) -> Path | None:
    """Write the section of the adapter's model card, and evaluation.json if it is a run's adapter; return that run.

    A checkpoint's evaluation is not its run's: nothing is written for it.
    """
    if (origin.adapter / "README.md").is_file():
        put_section(origin.adapter / "README.md", SECTION, card_lines(document))
        put_results(origin.adapter / "README.md", document)
    if origin.run is None or RunPaths(origin.run).adapter.resolve() != origin.adapter:
        return None
    write_json(RunPaths(origin.run).evaluation, document)
    return origin.run


def card_lines(document: dict[str, Any]) -> list[str]:
    """Return the model card's lines about an evaluation: its `--json` document."""
    rows = [("all", document), *document["by_category"].items()]
    bases = {base_title(name, document[name]): document[name] for name in BASES if document.get(name)}
    titles = "".join(f" {title} |" for title in bases)
    lines = [
        f"{document['cases']} cases ({short_place(document['cases_file'])}), answers to queries and programs run, "
        "JSON compared; "
        f"{_chosen(document['generation'])}, at most {document['generation']['max_new_tokens']} tokens; "
        f"{document['generation']['cut_off']} cut off there, {document['generation'].get('looping', 0)} ended in a loop.",
        *filter(None, [grammar_in_words(document.get("grammar"))]),
        "",
        f"| category | correct | accuracy | 95 % interval |{titles}",
        f"|---|---|---|---|{'---|' * len(bases)}",
    ]
    for name, share in rows:
        alone = [base if name == "all" else base["by_category"][name] for base in bases.values()]
        low, high = share["ci95"]
        lines.append(
            f"| {name} | {share['correct']}/{share['cases']} | {share['accuracy']:.1%} | {low:.1%} to {high:.1%} |"
            + "".join(f" {one['accuracy']:.1%} |" for one in alone)
        )
    lines += _sampled_lines(document)
    for title, base in bases.items():
        low, high = base["difference"]["ci95"]
        difference = base["difference"]["difference"]
        lines += [
            "",
            f"Against the {title}: {difference:+.1%} (95 % interval {low:+.1%} to {high:+.1%}).",
        ]
    return lines


def _chosen(generation: dict[str, Any]) -> str:
    if generation["temperature"]:
        return f"drawn at temperature {generation['temperature']:g}"
    beams = generation.get("num_beams", 1)
    return f"by beam search, {beams} beams" if beams > 1 else "greedy"


def _sampled_lines(document: dict[str, Any]) -> list[str]:
    """Return the lines about several answers to each case; none where there is one."""
    shares = sample_shares(document)
    if not shares:
        return []
    return [
        "",
        f"{len(document['pass_at'])} answers drawn to each case; those above are the first.",
        "",
        "| of all answers | share | 95 % interval |",
        "|---|---|---|",
        *(f"| {name} | {share:.1%} | {low:.1%} to {high:.1%} |" for name, share, (low, high) in shares),
    ]
