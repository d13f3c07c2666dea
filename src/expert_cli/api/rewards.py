"""Our judges as reward functions, in the form that TRL's trainers call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.paths import FilePath


def binary_reward(prompts: Sequence[Any], completions: Sequence[Any], **arguments: Any) -> list[float]:
    """Return 1.0 for each answer that is right, 0.0 for any other: a reward function of TRL's GRPOTrainer.

    Arguments and errors are those of `dense_reward`.
    """
    return [float(worth == 1.0) for worth in dense_reward(prompts, completions, **arguments)]


def dense_reward(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    *,
    root: FilePath = ".",
    timeout_s: float = 2.0,
    allow_commands: bool = False,
    without_walls: bool = False,
    **columns: Any,
) -> list[float]:
    """Return what each answer is worth by how far it came, 1.0 where it is right: a reward function of TRL's GRPOTrainer.

    Answers are judged as `evaluate` judges them: queries and programs are run, several at once, equal answers to equal cases
    once. What `functools.partial` binds (`root`, `timeout_s`) is kept out of the data set's columns.

    By its verdict: `correct` 1.0; `wrong`, which runs or compiles, 0.3; `unknown_name`, and what can only be parsed here, 0.1;
    all else 0.0: what does not parse or is empty, and whatever had to be stopped.

    Args:
        prompts: What was asked, one a completion; not read, since the case says what is right.
        completions: Texts, or conversations as TRL has them, whose last message of the assistant counts.
        root: The folder that paths in cases are relative to.
        timeout_s: Seconds that one answer may run; more is worth 0.0.
        allow_commands: Run the programs that cases name as their judges.
        without_walls: Run answers that are programs also where nothing keeps them from the network.
        columns: The data set's columns, an entry a completion, of which the keys of a case count (`verifier`, `database`,
            `expected`, `tests`, ...; docs/EXPERT_FORMAT.md), or one column `case`, the row as JSON text. Columns that are no
            key of the case, and what a trainer hands on beside them, are passed over.

    Raises:
        InputError: A case is at fault: a key is missing, a file is not there, its own query fails.
        EnvironmentProblem: What runs the answers, or what keeps them from the network, is missing.
    """
    from expert_cli.evaluation.grade import Permissions
    from expert_cli.evaluation.trl import DENSE, grades

    if len(prompts) != len(completions):
        raise InputError(f"{len(prompts)} prompts, {len(completions)} completions", "give one prompt a completion")
    allowed = Permissions(allow_commands, without_walls, timeout_s)
    return [DENSE.get(one.kind, 0.0) for one in grades(completions, columns, Path(root), allowed)]
