"""What is asked of a run besides its settings, and the command line that asks the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.config.resolve import Overrides
from expert_cli.runs.status import nothing

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from expert_cli.config.run_config import RunConfig
    from expert_cli.evaluation.grade import Permissions

_LEFT_OUT = ("resume", "overwrite", "command", "callbacks", "stored_at", "written")
_OPTIONS = {"settings": "set", "drift": "allow-drift", "init_adapter": "from"}
"""Fields whose option has another name."""


@dataclass(frozen=True)
class RunOptions:
    """What is asked of a run besides its settings.

    overwrite: move a run that lies in the output folder aside. resume: "auto" (the newest good checkpoint, if there is one),
    a checkpoint's folder, or "" for a new run; drift: keys of the identity that may differ then. locked: a run.json that
    this run must agree with in data, rows, masks, tokenizer, base model, settings and code. trust_store: use a data set that
    another program saved where the token store should be. stage: a folder (a faster disk) that the token store is copied to,
    and read from. command: what starts the run from a shell, --resume and --overwrite left out. max_forget: by how many nats
    a token the loss on neutral texts may rise; None: by any. allow_commands, without_walls: as
    `Permissions` of judging has them. callbacks: people's own, of Python alone. stored_at: the URL that the run directory is
    kept at, "" for none. written: called when the run's status was written: after each checkpoint and stage.
    """

    overwrite: bool = False
    resume: str = ""
    drift: tuple[str, ...] = ()
    locked: Path | None = None
    trust_store: bool = False
    stage: Path | None = None
    command: str = "expert-cli train"
    max_forget: float | None = None
    allow_commands: bool = False
    without_walls: bool = False
    callbacks: tuple[TrainerCallback, ...] = ()
    stored_at: str = ""
    written: Callable[[], object] = nothing

    @property
    def permissions(self) -> Permissions:
        """What judging in this run may do."""
        from expert_cli.evaluation.grade import Permissions

        return Permissions(self.allow_commands, self.without_walls)


def require_folders_apart(run: RunConfig, options: RunOptions) -> None:
    """Raise InputError if a folder that is written to lies in one that rows are read from."""
    from expert_cli.data.sources import require_apart

    require_apart(run.data, run.output, "--output DIR")
    if options.stage is not None:
        require_apart(run.data, options.stage, "--stage DIR")


def train_words(manifest: Path, overrides: Overrides, options: RunOptions = RunOptions()) -> list[str]:
    """Return the words behind `expert-cli` that start such a run, without what is said of an earlier one."""
    words = ["train", "--manifest", str(manifest)]
    for block in (overrides, options):
        for field in fields(block):
            value = getattr(block, field.name)
            if field.name in _LEFT_OUT or value == field.default:
                continue
            option = "--" + _OPTIONS.get(field.name, field.name).replace("_", "-")
            for one in value if isinstance(value, tuple) else (value,):
                words += [option] if one is True else [option, str(one)]
    return words


def command_line(manifest: Path, overrides: Overrides, options: RunOptions) -> str:
    """Return what starts such a run from a shell; `--resume auto` goes behind it."""
    return shlex.join(["expert-cli", *train_words(manifest, overrides, options)])
