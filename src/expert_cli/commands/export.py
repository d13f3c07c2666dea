"""`expert-cli export`."""

from __future__ import annotations

import random
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli.commands.options import (
    AdapterFolder,
    Debug,
    Json,
    Offline,
    Quiet,
    TrainedBase,
    TrainedManifest,
)
from expert_cli.console import Console

if TYPE_CHECKING:
    from expert_cli.plan import Trained

PROMPTS = 20


class Gguf(str, Enum):
    """How a GGUF file holds matrices."""

    q8_0 = "q8_0"
    f16 = "f16"


def export(
    adapter: AdapterFolder,
    output: Annotated[Path, typer.Option(help="A new folder.", show_default=False)],
    merge: Annotated[bool, typer.Option("--merge", help="The whole model with the adapter in it, in bf16.")] = False,
    gguf: Annotated[
        Gguf | None,
        typer.Option(help="The whole model as one GGUF file, with an Ollama Modelfile.", show_default=False),
    ] = None,
    manifest: TrainedManifest = None,
    base_model: TrainedBase = None,
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Write an expert in the form in which it is used, with its model card.

    Without --merge and --gguf: the adapter. What was merged is loaded again and answers; how many of its answers are those of
    base model and adapter, in their first 64 tokens, is shown. Nothing is ever overwritten.

    Examples:

        expert-cli export --adapter runs/sql --output expert-sql

        expert-cli export --adapter runs/sql --output expert-sql-merged --merge

        expert-cli export --adapter runs/sql --output expert-sql-gguf --gguf q8_0
    """
    from expert_cli.plan import require_new, trained

    console = Console("export", as_json=as_json, quiet=quiet)
    require_new(output)
    found = trained(adapter, manifest, base_model, offline=offline)
    prompts = _prompts(found)
    if not prompts and (merge or gguf):
        console.warn("no tests/cases.jsonl beside the manifest: answers before and after are not compared")
    console.say("loading the model")
    from expert_cli._compat import quiet_imports

    quiet_imports()
    from expert_cli.artifacts.export import export as write
    from expert_cli.artifacts.export import in_words

    done = write(found, output, prompts, console, merge=merge, gguf=gguf.value if gguf else None)
    document = done.as_json()
    if as_json:
        console.document(document)
        return
    rows = [[f"{file['bytes']:,}", str(file["sha256"])[:12], str(file["path"])] for file in document["files"]]
    console.table("written", ["bytes", "sha256", "file"], rows)
    for line in in_words(done.agreement):
        console.text(line)
    console.text(str(output))


def _prompts(found: Trained) -> list[tuple[str, str]]:
    """Return prompts of the expert's cases, drawn by seed; none where there are no cases."""
    from expert_cli.evaluation.cases import read_cases
    from expert_cli.evaluation.experts import own_cases

    path = own_cases(found.plan)
    cases = read_cases(path) if path.is_file() else []
    drawn = random.Random(found.plan.run.seed).sample(cases, min(PROMPTS, len(cases)))  # noqa: S311
    return [(case.prompt, case.input) for case in drawn]
