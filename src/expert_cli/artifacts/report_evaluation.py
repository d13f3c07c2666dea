"""The evaluation of a run's adapter as a report shows it: accuracy with intervals, failures with examples, by which rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expert_cli.runs.metrics import BASES, base_title, items, number, part
from expert_cli.utils.paths import shown

EXAMPLES = 3
CHARACTERS = 600
"""Of one answer that is shown as an example."""
ALL = "all cases"


def is_of(document: Mapping[str, Any], adapter_sha256: Any) -> bool:
    """Whether an evaluation is of this adapter: its hash is not another one."""
    evaluated = part(document, "expert").get("adapter_sha256")
    return not (evaluated and adapter_sha256) or evaluated == adapter_sha256


def headline(document: Mapping[str, Any]) -> str | None:
    """Return the accuracy of all cases in words, None where the document has none."""
    share = _share(document)
    return str(share["accuracy"]) if share else None


def evaluation_shown(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the page's template asks of an `evaluate --json` document; None for one that counts nothing."""
    if _share(document) is None:
        return None
    return {
        "gates": [gate for gate in (_threshold(document), _against(document)) if gate],
        "gain": " ".join(filter(None, (_gain(part(document, key)) for key in BASES))),
        "failures": _failures(document),
        "facts": _facts(document),
        "extraction": str(document.get("extraction") or ""),
    }


def accuracies(documents: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return a group of bars for all cases and for every category, one bar for each of (name, color, document).

    Documents that count nothing have none. A base model that answered too has a bar below its expert's.
    """
    found = [(name, color, document) for name, color, document in documents if _share(document)]
    several = dict.fromkeys(
        category
        for *_, document in found
        if len(part(document, "by_category")) > 1
        for category in part(document, "by_category")
    )
    groups = []
    for category in (None, *several) if found else ():
        bars = []
        for name, color, document in found:
            bars += _bars(name if len(found) > 1 else "", color, document, category)
        groups.append({"name": ALL if category is None else category, "bars": bars})
    return groups


def _bars(name: str, color: str, document: Mapping[str, Any], category: str | None) -> list[dict[str, Any]]:
    bases = [part(document, key) for key in BASES if part(document, key)]
    asked = [(document, name or ("expert" if bases else ""), color)]
    asked += [(base, base_title(base), "--base") for base in bases]
    bars = []
    for one, who, paint in asked:
        share = _share(one if category is None else part(one, "by_category", category))
        bars += [{**share, "who": who, "color": paint}] if share else []
    return bars


def _share(share: Mapping[str, Any]) -> dict[str, Any] | None:
    """Places in percent and words of {"cases", "correct", "accuracy", "ci95"}."""
    cases, correct, accuracy = (number(share, key) for key in ("cases", "correct", "accuracy"))
    ends = _ends(share)
    if not cases or correct is None or accuracy is None or ends is None:
        return None
    low, high = ends
    return {
        "width": f"{_percent(accuracy):.2f}",
        "low": f"{_percent(low):.2f}",
        "spread": f"{_percent(high) - _percent(low):.2f}",
        "counts": f"{correct:,.0f} of {cases:,.0f}",
        "accuracy": f"{accuracy:.1%}",
        "interval": f"{low:.1%} to {high:.1%}",
    }


def _threshold(document: Mapping[str, Any]) -> tuple[str, str] | None:
    threshold, accuracy = number(document, "threshold"), number(document, "accuracy")
    if threshold is None or accuracy is None:
        return None
    return f"Threshold {threshold:.1%}", "missed" if accuracy < threshold else "reached"


def _against(document: Mapping[str, Any]) -> tuple[str, str] | None:
    old = part(document, "against")
    cases, lost, gained, drop, allowed = (number(old, key) for key in ("cases", "lost", "gained", "drop", "max_drop"))
    if cases is None or lost is None or gained is None or drop is None or allowed is None:
        return None
    ends = _ends(old)
    interval = f" (95 % interval of the drop {ends[0]:.1%} to {ends[1]:.1%})" if ends else ""
    words = (
        f"Against {old.get('file')}: {cases:,.0f} cases, {lost:,.0f} lost, {gained:,.0f} gained; accuracy "
        f"{'fell' if drop > 0 else 'rose'} by {abs(drop):.1%}{interval}; at most {allowed:.1%} may be lost"
    )
    return words, "held" if old.get("held") else "missed"


def _gain(base: Mapping[str, Any]) -> str:
    difference = part(base, "difference")
    gained, lost, share = (number(difference, key) for key in ("gained", "lost", "difference"))
    if gained is None or lost is None or share is None:
        return ""
    ends = _ends(difference)
    interval = f" (95 % interval {ends[0]:+.1%} to {ends[1]:+.1%})" if ends else ""
    return f"Beside the {base_title(base)} the expert gained {gained:,.0f} cases and lost {lost:,.0f}: {share:+.1%}{interval}."


def _failures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    answers = [answer for answer in items(document, "answers") if isinstance(answer, dict)]
    return [
        {
            "kind": kind.replace("_", " "),
            "count": f"{count:,}",
            "examples": [
                {"id": str(one.get("id")), "detail": str(one.get("detail") or ""), "answer": _short(one.get("answer"))}
                for one in [answer for answer in answers if answer.get("kind") == kind][:EXAMPLES]
            ],
        }
        for kind, count in part(document, "failures").items()
        if isinstance(count, int)
    ]


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    generation, expert = part(document, "generation"), part(document, "expert")
    limit, cut = number(generation, "max_new_tokens"), number(generation, "cut_off")
    asked, file = number(document, "limit"), document.get("cases_file")
    tokens, pace = number(generation, "tokens"), number(generation, "tokens_per_s")
    known = [
        ("file of the cases", isinstance(file, str) and shown(file)),
        ("answered of them", asked is not None and f"at most {asked:,.0f} (--limit)"),
        ("tokens chosen", _chosen(generation)),
        ("an answer may have", limit is not None and f"{limit:,.0f} tokens"),
        ("answers cut off there", cut is not None and f"{cut:,.0f}"),
        ("tokens written", tokens is not None and f"{tokens:,.0f}"),
        ("tokens a second", pace is not None and f"{pace:,.0f}"),
        ("base model's weights", " ".join(str(expert[key]) for key in ("quantization", "dtype") if expert.get(key))),
        ("prompt template", str(expert.get("template") or "")),
    ]
    return [(name, value) for name, value in known if value]


def _chosen(generation: Mapping[str, Any]) -> str:
    temperature = number(generation, "temperature")
    if temperature is None:
        return ""
    if temperature == 0:
        return "greedy"
    others = [f"{key} {value:g}" for key in ("top_k", "top_p", "min_p", "seed") if (value := number(generation, key))]
    return ", ".join([f"drawn, temperature {temperature:g}", *others])


def _ends(value: Mapping[str, Any]) -> tuple[float, float] | None:
    ends = [end for end in items(value, "ci95") if number({"end": end}, "end") is not None]
    return (float(ends[0]), float(ends[1])) if len(ends) == 2 else None


def _percent(share: float) -> float:
    return 100 * min(1.0, max(0.0, share))


def _short(answer: Any) -> str:
    text = str(answer or "")
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"
