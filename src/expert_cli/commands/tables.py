"""Evaluations and estimates as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expert_cli.console.terminal import Console
from expert_cli.runs.metrics import WITHOUT_GRAMMAR, base_title, grammar_in_words, sample_shares
from expert_cli.utils.text import duration, shortened

if TYPE_CHECKING:
    from expert_cli.evaluation.grade import Evaluated, Evaluation

MOST_COLUMNS = 8


def show_evaluated(console: Console, found: Evaluated) -> None:
    """Print accuracy, failures, what samples are worth, what the answers cost, other answers, and what changed since."""
    _show_evaluation(console, found.evaluation)
    _show_samples(console, found)
    if written := found.generation:
        console.info("{tokens:,} tokens in {seconds:.0f} s, {tokens_per_s:,.0f} tokens/s".format(**written))
    _warn_of_cut(console, "", found.generation)
    if found.bases:
        console.text("")
        title = "other answers to the same cases, and the expert beside them"
        columns = ["correct", "accuracy", "95 % interval", "expert gained", "lost", "difference (95 %)", "asked"]
        rows = []
        for name, base in found.bases.items():
            rise, (low, high) = base["difference"], base["difference"]["ci95"]
            difference = f"{rise['difference']:+.1%} ({low:+.1%} to {high:+.1%})"
            how = "" if name == WITHOUT_GRAMMAR else f": {base.get('template', 'template not kept')}"
            counts = [str(rise["gained"]), str(rise["lost"]), difference]
            rows.append([*_share(base), *counts, base_title(name, base) + how])
        console.table(title, columns, rows)
    if held := grammar_in_words(found.grammar_json):
        console.text(held)
    for name, base in found.bases.items():
        _warn_of_cut(console, f" of the {base_title(name, base)}", base.get("generation"))
    if found.drop:
        _show_drop(console, found.drop)


def _show_evaluation(console: Console, evaluation: Evaluation) -> None:
    categories = evaluation.by_category
    shares = {"all": evaluation.share, **(categories if len(categories) > 1 else {})}
    rows = [[*_share(share), name] for name, share in shares.items()]
    console.table("accuracy", ["correct", "accuracy", "95 % interval", "category"], rows)
    for one in evaluation.classifications:
        _show_classification(console, one)
    if evaluation.failures:
        console.text("")
        failures = [
            [kind if index == 0 else "", str(count) if index == 0 else "", f"{one.row.id}: {one.verdict.detail}"]
            for kind, count in evaluation.failures.items()
            for index, one in enumerate(evaluation.examples(kind))
        ]
        console.table("failures", ["class", "answers", "examples"], failures)
    if "parsed_only" in evaluation.failures:
        console.warning(f"{evaluation.failures['parsed_only']} answers could only be parsed here: that proves nothing")
    for note in dict.fromkeys(one.verdict.detail for one in evaluation.answers if one.verdict.passed):
        if note:
            console.warning(f"correct, but {note}")


def _show_classification(console: Console, found: Mapping[str, Any]) -> None:
    """Print F1 by label, and which label was answered for which: of few labels all counts, of many the largest."""
    names, whole = [*found["labels"], "none of them"], len(found["labels"]) <= MOST_COLUMNS
    rows = []
    for (label, score), counts in zip(found["by_label"].items(), found["confusion"], strict=True):
        wrong = sorted(((n, name) for n, name in zip(counts, names, strict=True) if name != label), reverse=True)
        taken = ", ".join(f"{name} {count}" for count, name in wrong[:3] if count)
        figures = [f"{score[name]:.3f}" for name in ("precision", "recall", "f1")]
        rows.append([str(score["cases"]), *figures, *(map(str, counts) if whole else [taken]), label])
    console.text("")
    title = f"labels: macro F1 {found['macro_f1']:.3f}; which was answered (columns) for which (rows)"
    shown = names if whole else ["answered instead"]
    console.table(title, ["cases", "precision", "recall", "F1", *shown, "label"], rows)


def _show_samples(console: Console, found: Evaluated) -> None:
    """Print pass@k and what the majority is worth, where there are several answers to a case."""
    sampled = found.evaluation.sampled
    if not sampled:
        return
    tries = sum(len(one.samples) for one in found.evaluation.answers)
    shares = sample_shares({**sampled, WITHOUT_GRAMMAR: found.bases.get(WITHOUT_GRAMMAR)})
    title = f"all {tries:,} answers, {len(sampled['pass_at'])} a case; the accuracy above is that of the first ones"
    console.text("")
    rows = [[f"{share:.1%}", _interval(ends), name] for name, share, ends in shares]
    console.table(title, ["share", "95 % interval", ""], rows)


def _share(share: Mapping[str, Any]) -> list[str]:
    return [f"{share['correct']}/{share['cases']}", f"{share['accuracy']:.1%}", _interval(share["ci95"])]


def _warn_of_cut(console: Console, whose: str, written: Mapping[str, Any] | None) -> None:
    if written and written["cut_off"]:
        told = f"{written['cut_off']} answers{whose} were cut off at {written['max_new_tokens']} tokens"
        console.warning(f"{told}: --max-new-tokens")
    if written and written.get("looping"):  # older evaluations did not count them
        console.warning(f"{written['looping']} answers{whose} were ended where they said one thing over and over")


def _show_drop(console: Console, drop: Mapping[str, Any]) -> None:
    told = "against {file}: {cases} cases, {lost} lost, {gained} gained; accuracy".format(**drop)
    change = f"{'fell' if drop['drop'] > 0 else 'rose'} by {abs(drop['drop']):.1%}"
    console.text("")
    console.text(f"{told} {change} (95 % interval of the drop {_interval(drop['ci95'])})")
    named = shortened(", ".join(drop["differ"]), 300)
    told = "{answers_differ:,} of {answers:,} answers are other texts than then".format(**drop)
    console.text(f"{told}: {named}" if named else told)


def _interval(ends: Sequence[float]) -> str:
    return f"{ends[0]:.1%} to {ends[1]:.1%}"


COMPONENTS = {
    "base_weights": "base weights, as stored",
    "dequantised_copy": "unpacked copy of 4-bit weights",
    "adapter": "adapter, fp32",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "head_chunk": "head and loss",
    "backward": "backward pass, beyond the head's",
    "process": "Python process",
}


def show_estimate(console: Console, found: dict[str, Any]) -> None:
    """Write two tables: what the run needs, and its memory by component. `found`: `RunEstimate.as_json()`."""
    memory, device, price = found["vram_mb"], found["kernels"]["device"]["used"], found["price"]
    error, store = f"± {found['seconds_error_pct']:.0f} %", f"the token store ({found['store']['status']})"
    tokens = f"{found['tokens_total']:,} ({found['tokens_per_step']:,.0f} a step)"
    time = f"{duration(found['seconds'])} ({found['tokens_per_s']:,.0f} tokens/s)"
    size, off = f"{memory['total'] / 1024:.1f} GB", f"± {memory['error_pct']:.0f} %"
    rows = [
        ["steps", f"{found['steps']:,}", "exact", store],
        ["epochs", f"{found['epochs']:.2f}", "exact", store],
        ["tokens", tokens, "exact", store],
        ["memory" if device == "cpu" else "GPU memory", size, off, found["memory_source"]],
        ["time", time, error, found["seconds_source"]],
    ]
    if price is None:
        rows.append(["cost", "not known", "", "--price 2.50/h names what an hour costs"])
    else:
        hour, cost = (_money(amount, price["currency"]) for amount in (price["per_hour"], found["cost"]))
        rows.append(["cost", cost, error, f"{hour} an hour (--price) x time"])
    console.table("what this run will need", ["", "estimate", "how far off", "from"], rows)
    words = COMPONENTS if device == "cpu" else {**COMPONENTS, "process": f"{device.upper()} context (assumed)"}
    rows = [[word, f"{memory[name]:,.0f} MB"] for name, word in words.items() if memory[name] > 0]
    console.table("memory by component (formula)", ["component", "size"], rows)
    for line in found["advice"]:
        console.text(line)


def _money(amount: float, currency: str) -> str:
    """Return an amount with the sign before it, or the code behind it."""
    return f"{amount:.2f} {currency}".strip() if currency.isalpha() else f"{currency}{amount:.2f}"
