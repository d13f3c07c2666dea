"""An evaluation as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from expert_cli.console import Console
from expert_cli.rundir import base_title

if TYPE_CHECKING:
    from expert_cli.evaluation.against import Drop
    from expert_cli.evaluation.baseline import Compared
    from expert_cli.evaluation.experts import Evaluated
    from expert_cli.evaluation.judge import Evaluation


def show_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Print accuracy by category, and the classes of failures with examples."""
    shares = {"all": evaluation.share}
    if len(evaluation.by_category) > 1:
        shares |= evaluation.by_category
    rows = [[f"{share.correct}/{share.cases}", f"{share.accuracy:.1%}", _interval(share.ci95), name]
            for name, share in shares.items()]  # fmt: skip
    console.table("accuracy", ["correct", "accuracy", "95 % interval", "category"], rows)
    if evaluation.failures:
        console.text("")
        failures = [
            [kind if index == 0 else "", str(count) if index == 0 else "", f"{one.row.id}: {one.verdict.detail}"]
            for kind, count in evaluation.failures.items()
            for index, one in enumerate(evaluation.examples(kind))
        ]
        console.table("failures", ["class", "answers", "examples"], failures)
    if "parsed_only" in evaluation.failures:
        console.warn(f"{evaluation.failures['parsed_only']} answers could only be parsed here: that proves nothing")
    for note in dict.fromkeys(one.verdict.detail for one in evaluation.answers if one.verdict.passed):
        if note:
            console.warn(f"correct, but {note}")


def show_generation(console: Console, found: Evaluated) -> None:
    """Print what the answers cost, and the base model beside the expert."""
    written = found.generation
    if written is not None:
        console.say(
            f"{written['tokens']:,} tokens in {written['seconds']:.0f} s, {written['tokens_per_s']:,.0f} tokens/s"
        )
    _warn_of_cut(console, "", written)
    if found.bases:
        console.text("")
        console.table(
            "the base model alone, and the expert beside it",
            ["correct", "accuracy", "95 % interval", "expert gained", "lost", "difference (95 %)", "asked"],
            [_beside(base) for base in found.bases.values()],
        )
    for base in found.bases.values():
        _warn_of_cut(console, " of the base model", base.asked.get("generation"))


def _beside(base: Compared) -> list[str]:
    share, pairs = base.evaluation.share, base.pairs
    rise = pairs.reversed
    low, high = rise.ci95
    return [
        f"{share.correct}/{share.cases}",
        f"{share.accuracy:.1%}",
        _interval(share.ci95),
        str(pairs.gained),
        str(pairs.lost),
        f"{rise.drop:+.1%} ({low:+.1%} to {high:+.1%})",
        f"{base_title(base.asked)}: {base.asked.get('template', 'template not kept')}",
    ]


def _warn_of_cut(console: Console, whose: str, written: Mapping[str, Any] | None) -> None:
    if written is not None and written["cut_off"]:
        console.warn(
            f"{written['cut_off']} answers{whose} were cut off at {written['max_new_tokens']} tokens: --max-new-tokens"
        )


def show_drop(console: Console, drop: Drop) -> None:
    """Print what changed since an earlier evaluation."""
    pairs = drop.pairs
    change = "fell" if pairs.drop > 0 else "rose"
    console.text("")
    console.text(
        f"against {drop.file}: {pairs.cases} cases, {pairs.lost} lost, {pairs.gained} gained; accuracy {change} by "
        f"{abs(pairs.drop):.1%} (95 % interval of the drop {_interval(pairs.ci95)})"
    )
    if any(drop.alone):
        console.warn(
            f"not compared: {drop.alone[0]} cases that only this evaluation has, {drop.alone[1]} that only the other has"
        )


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.1%} to {ends[1]:.1%}"
