"""Tokenize an expert's data before training, or explain the state of its token store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.api.call_arguments import with_defaults
from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from expert_cli.config.run_config import RunConfig
    from expert_cli.pipeline.pretokenize import StoreReport
    from expert_cli.pipeline.training_data import DataInputs


@disk_errors()
def pretokenize(
    manifest: FilePath,
    *,
    output: FilePath | None = None,
    own_folder: bool = False,
    dataset: str | None = None,
    base_model: str | None = None,
    force: bool = False,
    verify: bool = False,
    documents: int = 0,
    threads: int = 0,
    stage: FilePath | None = None,
    prune: bool = False,
    ray: str = "",
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> StoreReport:
    """Tokenize an expert's data once; training then opens the result.

    Args:
        manifest: The expert's manifest.json.
        output: Folder for token stores. Default: the manifest's. A URL (s3://, gs://) puts the store into object storage.
        own_folder: With `output`: use a subfolder with the expert's name, so that several experts can share the folder.
        dataset: Use this file, folder, URL or hub id instead of the manifest's rows.
        base_model: The base model whose tokenizer is used, as for `train`.
        force: Build the store even if an existing one fits.
        verify: Hash every file of an existing store again.
        documents: Show this many documents token by token, from the first.
        threads: Number of tokenizing threads. 0: one for each core.
        stage: First copy the data to this folder, for example on a faster disk.
        prune: Delete this expert's other stores, including those for other base models.
        ray: Address of a Ray cluster that reads and tokenizes the rows; "local" starts one on this machine.
        offline: Use no network.
        reporter: Receives progress, messages and warnings.

    Returns:
        The store, its statistics, and how full packs are at several lengths. Raises what `train` raises for its data.
    """
    run = _run(locals())
    if prune and run.store_url:
        raise InputError("--prune does not go with token stores at a URL", "name a folder: --output DIR")
    inputs = _inputs(run, stage, reporter)
    from expert_cli.data.select import local_flat_map
    from expert_cli.data.store.lookup import prune as remove_others
    from expert_cli.data.store.on_ray import ray_flat_map
    from expert_cli.pipeline.pretokenize import describe, shown_documents, store_for

    put = output is not None  # only `output` may name a URL to write to
    with ray_flat_map(ray, reporter) if ray else nullcontext(local_flat_map) as flat_map:
        store = store_for(run, replace(inputs, flat_map=flat_map), reporter, verify=verify, force=force, put=put)
    report = describe(run, store)
    if prune:
        remove_others(run.store, store.key.sha256, run.expert, reporter)
    return replace(report, shown=shown_documents(store, inputs, documents) if documents else ())


@disk_errors()
def explain_store(manifest: FilePath, **arguments: Any) -> dict[str, Any]:
    """Return the state of the store that `pretokenize` would build: hit, missing, stale or damaged. Builds nothing.

    The result is what `pretokenize --explain --json` prints. Arguments and errors are those of `pretokenize`.
    """
    asked = with_defaults(pretokenize, manifest, **arguments)
    run = _run(asked)
    from expert_cli.pipeline.pretokenize import explain

    return explain(run, _inputs(run, asked["stage"], asked["reporter"]))


def _inputs(run: RunConfig, stage: FilePath | None, reporter: Reporter) -> DataInputs:
    from expert_cli.pipeline.staging import staged_inputs
    from expert_cli.pipeline.training_data import resolve_inputs

    inputs = resolve_inputs(run, reporter)
    return inputs if stage is None else staged_inputs(inputs, Path(stage), reporter)


def _run(asked: Mapping[str, Any]) -> RunConfig:
    """Return the run with the requested store folder, and prepare this process for tokenizing."""
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware import machine
    from expert_cli.utils.object_storage import StoredFolder, place_of
    from expert_cli.utils.paths import folder_name, folder_of_url
    from expert_cli.utils.process_setup import prepare_process

    overrides = Overrides(dataset=asked["dataset"], base_model=asked["base_model"], offline=asked["offline"])
    run = make_plan(Path(asked["manifest"]), machine.inspect(), overrides).run
    prepare_process()
    from expert_cli.data.encode import limit_threads

    limit_threads(asked["threads"])
    if asked["output"] is None:
        return run
    below = folder_name(run.expert) if asked["own_folder"] else ""
    place = place_of(asked["output"])
    if isinstance(place, Path):
        return replace(run, store=(place / below).resolve(), store_url="")
    url = StoredFolder(place).url_of(below)
    return replace(run, store=folder_of_url("stores", url), store_url=url)
