"""`expert-cli export`."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from expert_cli.commands.options import (
    AdapterFolder,
    AllowCommands,
    Offline,
    TrainedBase,
    TrainedManifest,
    WithoutWalls,
)
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from expert_cli.config.plan import TrainedAdapter
    from expert_cli.evaluation.bf16_base import OnBases
    from expert_cli.evaluation.permissions import Permissions

PROMPTS = 20


def export(
    console: Console,
    adapter: AdapterFolder,
    output: Annotated[Path, typer.Option(help="A new folder.")],
    merge: Annotated[bool, typer.Option("--merge", help="The whole model with the adapter in it, in bf16.")] = False,
    gguf: Annotated[
        Literal["q8_0", "f16"] | None,
        typer.Option(help="The whole model as one GGUF file, with an Ollama Modelfile."),
    ] = None,
    for_base: Annotated[
        Literal["bf16"] | None,
        typer.Option(help="Fit the adapter to the base model in bf16, in some dozen steps."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Ask so many cases on the base model as trained and in bf16.", show_default="all"),
    ] = None,
    manifest: TrainedManifest = None,
    base_model: TrainedBase = None,
    allow_commands: AllowCommands = False,
    without_walls: WithoutWalls = False,
    offline: Offline = False,
) -> None:
    """Write an expert in the form in which it is used, with its model card.

    Without --merge and --gguf: the adapter, with the lines of Python that load it. One that was trained on 4-bit or 8-bit
    weights answers the cases on those and on the base model in bf16, and both figures are shown; --for-base bf16 fits it to the
    latter, on the rows of its training.

    What was merged is loaded again and compared with base model and adapter: the logits, which may differ by the rounding of
    the stored weights alone, and the first 64 tokens of answers. Nothing is ever overwritten.

    Examples:

        expert-cli export --adapter runs/sql --output expert-sql

        expert-cli export --adapter runs/sql --output expert-sql-bf16 --for-base bf16

        expert-cli export --adapter runs/sql --output expert-sql-merged --merge

        expert-cli export --adapter runs/sql --output expert-sql-gguf --gguf q8_0
    """
    from expert_cli.config.plan import require_new, trained_adapter

    if for_base and (merge or gguf):
        raise typer.BadParameter("--for-base is for an adapter: what is merged is right on every machine")
    require_new(output)
    found = trained_adapter(adapter, manifest, base_model, offline=offline)
    console.info("loading the model")
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    from expert_cli.artifacts.export import export_expert
    from expert_cli.artifacts.merged_model import in_words
    from expert_cli.evaluation.evaluate import drawn_cases
    from expert_cli.evaluation.permissions import Permissions

    prompts = [case.asked for case in drawn_cases(found.plan, PROMPTS)]
    with tempfile.TemporaryDirectory() as folder:
        bases = None
        if not (merge or gguf):
            allowed = Permissions(allow_commands, without_walls)
            found, bases = _for_bases(found, Path(folder), limit, console, allowed, fits=for_base is not None)
        remarks = bases.in_words() if bases else []
        done = export_expert(found, output, prompts, console, merge=merge, gguf=gguf, remarks=remarks)
    document = done.as_json() | {"bases": bases.as_json() if bases else None}
    if console.as_json:
        console.document(document)
        return
    for line in [*in_words(done.agreement), *remarks]:
        console.text(line)
    rows = [[f"{file['bytes']:,}", str(file["sha256"])[:12], str(file["path"])] for file in document["files"]]
    console.table("written", ["bytes", "sha256", "file"], rows)
    console.text(str(output))


def _for_bases(
    found: TrainedAdapter, folder: Path, limit: int | None, console: Console, allowed: Permissions, *, fits: bool
) -> tuple[TrainedAdapter, OnBases | None]:
    """Return the adapter that is written, fitted to bf16 where asked, and how it answers on both base models.

    None for one that was trained on weights as they are, and where there is nothing to ask.
    """
    from expert_cli.artifacts.bf16_adapter import fit_to_bf16
    from expert_cli.config.run_config import QUANTIZED
    from expert_cli.evaluation.bf16_base import on_bases

    quantization = found.plan.run.model.quantization
    if quantization in QUANTIZED:
        fit = partial(fit_to_bf16, folder=folder, report=console) if fits else None
        return on_bases(found, limit, console, fit, allowed)
    if fits:
        raise InputError(
            f"--for-base bf16: this adapter was trained on {quantization} weights",
            "leave it out: the adapter is right there",
        )
    return found, None
