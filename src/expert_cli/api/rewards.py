"""Our judges as reward functions, in the form that TRL's trainers call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.paths import FilePath


def binary_reward(prompts: Sequence[Any], completions: Sequence[Any], **arguments: Any) -> list[float]:
    """Return 1.0 for each right answer and 0.0 for any other: a reward function for TRL's GRPOTrainer.

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
    """Return a graded reward for each answer, 1.0 for a right one: a reward function for TRL's GRPOTrainer.

    Answers are judged as by `evaluate`: queries and programs are run, several at once, equal answers to equal cases only once.
    Bind `root` and `timeout_s` with `functools.partial`.

    The verdict decides: `correct` 1.0; `wrong` (it runs or compiles) 0.3; `unknown_name` and `parsed_only` 0.1; anything else
    0.0, such as answers that are invalid, empty or stopped.

    Args:
        prompts: One for each completion. Not read: the case says what is right.
        completions: Texts, or conversations in TRL's form, of which the last assistant message counts.
        root: The folder that paths in cases are relative to.
        timeout_s: Seconds that an answer may run. Longer ones get 0.0.
        allow_commands: Run the programs that cases name as judges.
        without_walls: Run answers that are programs even if this system cannot sandbox them.
        columns: The data set's columns, one entry for each completion: either the keys of a case (`verifier`, `database`,
            `expected`, `tests`, ...; docs/EXPERT_FORMAT.md), or one column `case`, the row as JSON text. Other columns and
            other arguments of the trainer are ignored.

    Raises:
        InputError: A case is invalid: a key or file is missing, or its own query fails.
        EnvironmentProblem: A program that runs answers, or the sandbox, is missing.
    """
    from expert_cli.evaluation.grade import Permissions
    from expert_cli.evaluation.trl import DENSE, grades

    if len(prompts) != len(completions):
        raise InputError(f"{len(prompts)} prompts, {len(completions)} completions", "give a prompt for each completion")
    allowed = Permissions(allow_commands, without_walls, timeout_s)
    return [DENSE.get(one.kind, 0.0) for one in grades(completions, columns, Path(root), allowed)]
