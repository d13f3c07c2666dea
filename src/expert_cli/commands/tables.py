"""Tables of evaluations and estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expert_cli.console.terminal import Console
from expert_cli.runs.metrics import BASES, base_title, sample_shares
from expert_cli.utils.text import duration, plural

EXAMPLES = 3


def show_evaluated(console: Console, found: Mapping[str, Any]) -> None:
    """Print accuracy, failures, samples, other answers to the same cases, and the comparison with an earlier evaluation.

    found: the document of `evaluate --json`.
    """
    _show_evaluation(console, found)
    if "pass_at" in found:
        rows = [[f"{share:.1%}", _interval(ends), name] for name, share, ends in sample_shares(found)]
        title = f"all {len(found['pass_at'])} answers to each case; the accuracy above is that of the first ones"
        console.table(title, ["share", "95 % interval", ""], rows)
    bases = {base_title(name, found[name]): found[name] for name in BASES if found[name]}
    if bases:
        columns = ["correct", "accuracy", "95 % interval", "expert gained", "lost", "difference (95 %)", "asked"]
        rows = []
        for title, base in bases.items():
            rise = base["difference"]
            difference = f"{rise['difference']:+.1%} ({_interval(rise['ci95'], '+.1%')})"
            rows.append([*_share(base), str(rise["gained"]), str(rise["lost"]), difference, title])
        console.table("the same cases, answered in other ways", columns, rows)
    written = {"": found["generation"], **{f" of the {title}": base.get("generation") for title, base in bases.items()}}
    for whose, how in written.items():
        if how and how["cut_off"]:
            told = f"{plural(how['cut_off'], 'answer')}{whose} cut off at {how['max_new_tokens']} tokens"
            console.warning(f"{told}: --max-new-tokens")
        if how and how.get("looping"):
            console.warning(f"{plural(how['looping'], 'answer')}{whose} stopped because of repetition")
    if drop := found["against"]:
        told = "against {file}: {cases} cases, {lost} lost, {gained} gained; accuracy".format(**drop)
        change = f"{'fell' if drop['drop'] > 0 else 'rose'} by {abs(drop['drop']):.1%}"
        console.text(f"{told} {change} (95 % interval of the drop {_interval(drop['ci95'])})")
        console.text("{answers_differ:,} of {answers:,} answers have another text".format(**drop))


def _show_evaluation(console: Console, found: Mapping[str, Any]) -> None:
    categories, failed = found["by_category"], found["failures"]
    shares = {"all": found, **(categories if len(categories) > 1 else {})}
    rows = [[*_share(share), name] for name, share in shares.items()]
    console.table("accuracy", ["correct", "accuracy", "95 % interval", "category"], rows)
    rows = []
    for kind, count in failed.items():
        examples = [one for one in found["answers"] if one["kind"] == kind][:EXAMPLES]
        told = [f"{one['id']}: {one['detail']}" for one in examples]
        rows += [[kind, str(count), told[0]], *(["", "", line] for line in told[1:])]
    if rows:
        console.table("failures", ["class", "answers", "examples"], rows)
    if "parsed_only" in failed:
        console.warning(f"{failed['parsed_only']} answers could only be parsed, not run: they may be right or wrong")
    for note in dict.fromkeys(one["detail"] for one in found["answers"] if one["kind"] == "correct"):
        if note:
            console.warning(f"correct, but {note}")


def _share(share: Mapping[str, Any]) -> list[str]:
    return [f"{share['correct']}/{share['cases']}", f"{share['accuracy']:.1%}", _interval(share["ci95"])]


def _interval(ends: Sequence[float], form: str = ".1%") -> str:
    return " to ".join(format(end, form) for end in ends)


def show_estimate(console: Console, found: dict[str, Any]) -> None:
    """Write two tables: what the run needs, and its memory by component. found: `RunEstimate.as_json()`."""
    memory, cost = found["vram_mb"], found["cost"]
    error, store = f"± {found['seconds_error_pct']:.0f} %", f"the token store ({found['store']['status']})"
    tokens = f"{found['tokens_total']:,} ({found['tokens_per_step']:,.0f} per step)"
    time = f"{duration(found['seconds'])} ({found['tokens_per_s']:,.0f} tokens/s)"
    rows = [
        ["steps", f"{found['steps']:,}", "exact", store],
        ["epochs", f"{found['epochs']:.2f}", "exact", store],
        ["tokens", tokens, "exact", store],
        ["memory", f"{memory['total'] / 1024:.1f} GB", f"± {memory['error_pct']:.0f} %", found["memory_source"]],
        ["time", time, error, found["seconds_source"]],
        ["cost", "not known", "", "give the price of an hour: --price 2.50/h"]
        if cost is None
        else ["cost", f"{cost:.2f}", error, "--price x time"],
    ]
    console.table("estimate of this run", ["", "estimate", "error", "source"], rows)
    sizes = {name: size for name, size in memory.items() if size > 0 and name not in ("total", "error_pct")}
    rows = [[name.replace("_", " "), f"{size:,.0f} MB"] for name, size in sizes.items()]
    console.table("memory by component (formula)", ["component", "size"], rows)
    for line in found["advice"]:
        console.text(line)
