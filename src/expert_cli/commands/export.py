"""`expert-cli export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from expert_cli.commands.options import AdapterFolder, Offline, TrainedBase, TrainedManifest
from expert_cli.console.terminal import Console
from expert_cli.utils.disk_errors import disk_errors


def export(
    console: Console,
    adapter: AdapterFolder,
    output: Annotated[Path, Option(help="A new folder.")],
    merge: Annotated[bool, Option("--merge", help="The whole model in bf16, with the adapter merged.")] = False,
    gguf: Annotated[Literal["q8_0", "f16"] | None, Option(help="The whole model as GGUF, with a Modelfile.")] = None,
    manifest: TrainedManifest = None,
    base_model: TrainedBase = None,
    offline: Offline = False,
) -> None:
    """Write an expert as an adapter, a merged model or a GGUF file, with its model card.

    Without --merge and --gguf: the adapter, and the lines of Python that load it.

    A merged model is loaded again and compared with the trained one on the first tokens of 20 answers: how often both
    choose the same token, and the largest KL divergence. Beside an adapter, the base model alone is compared, which
    shows whether the adapter changes anything. Existing files are never overwritten.

    Examples:

        expert-cli export --adapter runs/sql --output expert-sql
        expert-cli export --adapter runs/sql --output expert-sql-merged --merge
        expert-cli export --adapter runs/sql --output expert-sql-gguf --gguf q8_0
    """
    from expert_cli.config.plan import require_new, trained_adapter
    from expert_cli.utils.process_setup import prepare_process

    require_new(output)
    found = trained_adapter(adapter, manifest, base_model, offline=offline)
    console.info(found.plan.loading)
    prepare_process()
    from expert_cli.artifacts.export import PROMPTS, export_expert, in_words
    from expert_cli.evaluation.evaluate import drawn_cases

    prompts = [case.asked for case in drawn_cases(found.plan, PROMPTS)]
    with disk_errors(f"cannot write {output}", "give another folder with --output"):
        document = export_expert(found, output, prompts, console, merge=merge, gguf=gguf)
    rows = [[f"{file['bytes']:,}", str(file["sha256"])[:12], str(file["path"])] for file in document["files"]]

    def show() -> None:
        console.text("\n".join([*in_words(document["agreement"]), str(output)]))
        console.table("written", ["bytes", "sha256", "file"], rows)

    console.result(document, show)
