"""The effects table on a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from expert_cli.console import Console
from expert_cli.manifest.effects import Effect


def show_effects(console: Console, effects: Sequence[Effect], *, short: bool, to_stdout: bool) -> None:
    """Write the table; short: one line of counts, then only keys of `training.config` that do not simply apply."""
    counts: Counter[str] = Counter(effect.status for effect in effects)
    names = ("applied", "adjusted", "informational", "not_used")
    title = "effects of the manifest: " + ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in names)
    rows = [
        [
            effect.key,
            _shown(effect.value),
            effect.status.replace("_", " "),
            " ".join(filter(None, (effect.effect, _why(effect)))),
        ]
        for effect in effects
        if not short or (effect.status in ("adjusted", "not_used") and ".config." in effect.key)
    ]
    console.table(title, ["key", "value", "status", "effect and reason"], rows, to_stdout=to_stdout)


def _why(effect: Effect) -> str:
    return f"({effect.reason})" if effect.effect and effect.reason else effect.reason


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 32 else text[:31] + "…"
