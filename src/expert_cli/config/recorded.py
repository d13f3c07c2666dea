"""How run.json writes a RunConfig: no key of it may change when the code renames a field.

`--resume`, `--locked`, reports and later runs compare what is written here with what runs of every earlier version wrote. A key
may be added; none is renamed or removed: a field that gets another name keeps the old one in `RECORDED_AS`, as a test demands.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from expert_cli.config.run_config import RunConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RECORDED_AS = {"execution_eval_steps": "judge_every", "execution_eval_sample": "judge_sample"}
"""Fields that have another name in run.json than in the code."""
SETTINGS = ("model", "adapter", "optim", "loader", "compute")


def block(part: DataclassInstance) -> dict[str, Any]:
    """Return a RunConfig, or a block of one, as run.json has it. Paths are Path objects, lists are tuples, as there."""
    return asdict(part, dict_factory=lambda pairs: {RECORDED_AS.get(name, name): value for name, value in pairs})


def settings(run: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the blocks whose values are the same in two equal runs: what `identity` holds as "block.key"."""
    return {name: block(getattr(run, name)) for name in SETTINGS}
