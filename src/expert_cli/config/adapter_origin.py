"""Finds the origin of an adapter, from its folder and the run directory that contains it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from expert_cli.config.run_config import ModelConfig, RunConfig
from expert_cli.errors import InputError, IntegrityError
from expert_cli.manifest.key import Dtype
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.paths import is_inside
from expert_cli.utils.redaction import redact

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
BASE = "base_model.json"
"""Describes the base model in training: name and hash, quantization, prompt format."""
EXPERT_CONFIG = "expert.json"
"""Settings for asking the expert: `inference/expert_config.py`."""


PROMPTING = ("system_prompt", "chat_template", "chat_template_kwargs")
"""Settings of a run's model that decide how prompts are written, in addition to `prompt_template`."""


@dataclass(frozen=True)
class AdapterOrigin:
    """An adapter folder and its origin. Unknown values are "" or None, as for an adapter outside a run directory.

    template: the fingerprint of the prompt template. system_prompt: None = not written. chat_template, chat_template_kwargs:
    the manifest's own, as in `ModelConfig`. quantization: of an exported adapter's base model. store: the token store of its
    rows. manifest: the file it was trained from, which may no longer exist. dtype: of training. expert_config: the file with
    the settings for asking it; for a checkpoint, that of its run's adapter. schema_prompt: how training showed databases; None
    = not at all. sealed: whether its run recorded the files' hashes in COMPLETE.
    """

    adapter: Path
    run: Path | None
    base_model: str
    base_sha256: str
    template: str
    system_prompt: str | None
    manifest: Path | None
    dtype: Dtype | None
    quantization: str = ""
    store: Path | None = None
    expert_config: Path | None = None
    schema_prompt: SchemaPromptConfig | None = None
    chat_template: str = ""
    chat_template_kwargs: tuple[tuple[str, Any], ...] = ()
    sealed: bool = False

    def require_base(self, name: str, sha256: str) -> None:
        """Raise InputError if the adapter was trained on another base model; unknown values are not compared."""
        if self.base_sha256 and self.base_sha256 != sha256:
            told = f"{self.adapter} was trained on {self.base_model} ({self.base_sha256[:12]}), {name} is {sha256[:12]}"
            raise InputError(told, "name the base model it was trained on: --base-model")

    def fits_template(self, fingerprint: str) -> bool:
        """Whether a prompt template may be that of training; in files, possible secrets are removed from it."""
        return self.template in ("", fingerprint, redact(fingerprint))

    @property
    def knows_system_prompt(self) -> bool:
        """Whether the system prompt of training is known."""
        return self.run is not None or self.expert_config is not None

    def prompting(self, model: ModelConfig) -> ModelConfig:
        """Return a run's model with the prompt settings of training, as far as they are known."""
        if not self.knows_system_prompt:
            return model
        return replace(model, **{name: getattr(self, name) for name in PROMPTING})


def find_adapter(folder: Path) -> AdapterOrigin:
    """Return the adapter in `folder`: a run directory, an adapter, or a checkpoint. Raises InputError without one."""
    found = next((path for path in (folder, RunPaths(folder).adapter) if (path / CONFIG).is_file()), None)
    if found is None:
        raise InputError(f"{folder}: no adapter there", "give a finished run, its adapter/, or a checkpoint of it")
    if not (found / WEIGHTS).is_file():
        raise InputError(f"{found}: no {WEIGHTS}", "other formats are not used, because reading them can run code")
    adapter = found.resolve()
    told = read_json(adapter / BASE)  # stays with an adapter that is moved out of its run
    base = str(told.get("name") or read_json(adapter / CONFIG).get("base_model_name_or_path") or "")
    run = next((path for path in list(adapter.parents)[:2] if RunPaths(path).run_json.is_file()), None)
    sealed = _require_sealed(run, adapter) if run else False
    recorded = read_json(RunPaths(run).run_json) if run else {}
    manifest = part(recorded, "config").get("manifest")
    places = [adapter / EXPERT_CONFIG, *([RunPaths(run).adapter / EXPERT_CONFIG] if run else [])]
    asked = next((path for path in places if path.is_file()), None)
    prompting = read_json(asked) if asked else part(recorded, "config", "model")
    computed_in = part(recorded, "config", "compute").get("dtype")
    # an object in expert.json, a list of pairs in run.json
    pairs = part(prompting, "chat_template_kwargs").items() or items(prompting, "chat_template_kwargs")
    return AdapterOrigin(
        adapter,
        run,
        base_model=str(part(recorded, "config", "model").get("name", base)),
        base_sha256=str(part(recorded, "model").get("sha256", told.get("sha256", ""))),
        template=str(part(recorded, "identity").get("template", told.get("template", ""))),
        system_prompt=prompting.get("system_prompt"),
        chat_template=str(prompting.get("chat_template") or ""),
        chat_template_kwargs=tuple((str(name), value) for name, value in pairs),
        manifest=Path(manifest) if manifest else None,
        dtype=next((dtype for dtype in get_args(Dtype) if dtype == computed_in), None),
        quantization=str(told.get("quantization", "")),
        store=Path(str(part(recorded, "store")["path"])) if "path" in part(recorded, "store") else None,
        expert_config=asked,
        schema_prompt=_shown((prompting if asked else part(recorded, "config", "data")).get("schema_prompt")),
        sealed=sealed,
    )


def _require_sealed(run: Path, adapter: Path) -> bool:
    """Return whether a run's COMPLETE records the adapter. Raises IntegrityError if a file differs from it."""
    try:
        lines = RunPaths(run).complete.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    sealed = {run / name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}
    for file, digest in sealed.items():
        if file.parent.resolve() == adapter and (not file.is_file() or sha256_of(file) != digest):
            told = f"{file} is not the file that the run wrote: its SHA-256 is not that in {RunPaths(run).complete}"
            hint = "train again, or copy the adapter anew; one that you changed: take COMPLETE away"
            raise IntegrityError(told, hint)
    return any(file.parent.resolve() == adapter for file in sealed)


def _shown(recorded: object) -> SchemaPromptConfig | None:
    """Return how databases are shown; None if unknown or of another form, which the readers of its file refuse."""
    try:
        return TypeAdapter(SchemaPromptConfig).validate_python(recorded)
    except ValidationError:
        return None


_SHIFTING = ("pissa", "olora", "corda", "loftq")
"""Adapter initializations (`init_lora_weights`) that also change the base model's weights."""


def init_origin(run: RunConfig) -> AdapterOrigin | None:
    """Return the adapter that training starts from; None for a new one. Raises InputError if it does not exist."""
    return find_adapter(run.adapter.init_adapter) if run.adapter.init_adapter is not None else None


def init_sha256(run: RunConfig) -> str:
    """Return the hash of the weights that training starts from, "none" for new ones. Raises as `init_origin`."""
    origin = init_origin(run)
    return sha256_of(origin.adapter / WEIGHTS) if origin else "none"


def missing_adapter(run: RunConfig) -> list[str]:
    """Return one sentence if the adapter to start from is not on this machine."""
    folder = run.adapter.init_adapter
    if folder is None or folder.exists():
        return []
    places = ", then in ".join(dict.fromkeys(map(str, (run.manifest.parent, run.root))))
    return [f"init_adapter {folder}: no such folder; looked for in {places}"]


def require_alike(run: RunConfig) -> None:
    """Raise InputError if the adapter to start from does not exist, or has another form than the run's.

    Its layers are compared when the model is loaded (`model.adapter`).
    """
    if missing := missing_adapter(run):
        raise InputError(
            missing[0], "give a run directory or an adapter folder: --from, or training.config.init_adapter"
        )
    origin = init_origin(run)
    if origin is None:
        return
    if is_inside(origin.adapter, run.output):
        message = f"{origin.adapter} is inside {run.output}, which this run writes"
        raise InputError(message, "give another folder with --output")
    told, asked = read_json(origin.adapter / CONFIG), run.adapter
    kinds = [name for name in ("dora", "rslora") if told.get(f"use_{name}")] if told.get("peft_type") == "LORA" else []
    kind = " and ".join(kinds) or str(told.get("peft_type", "unknown")).lower()
    was = {"adapter_type": kind, "rank": told.get("r"), "alpha": told.get("lora_alpha")}
    now: dict[str, Any] = {"adapter_type": asked.type, "rank": asked.rank, "alpha": asked.alpha}
    if other := [f"{key} is {was[key]}, the manifest's {now[key]}" for key in now if was[key] != now[key]]:
        hint = "set these keys of training.config as they were, or train a fresh adapter"
        raise InputError(f"{origin.adapter} cannot be trained on: its {'; '.join(other)}", hint)
    odd = [f"a {key}" for key in ("rank_pattern", "alpha_pattern", "modules_to_save") if told.get(key)]
    if (start := str(told.get("init_lora_weights", ""))).startswith(_SHIFTING):
        odd.append(f"init_lora_weights {start}, which changes the base model's weights")
    if odd:
        raise InputError(f"{origin.adapter} cannot be trained on: it has {odd[0]}", "train a fresh adapter")


def require_same_base(origin: AdapterOrigin, name: str, sha256: str, template: str) -> None:
    """Raise InputError if an adapter records another base model or prompt template."""
    origin.require_base(name, sha256)
    if not origin.fits_template(template):
        told = f"{origin.adapter} was trained with the prompt template {origin.template}, this run has {template}"
        raise InputError(told, 'set "prompt_template", "system_prompt" and the name of the input column as they were')


def provenance(run: RunConfig) -> dict[str, str] | None:
    """Return the entry in run.json for the adapter that training starts from, with its manifest if known; None: a new one."""
    origin = init_origin(run)
    if origin is None:
        return None
    return {"path": str(origin.adapter), "sha256": init_sha256(run), "manifest": str(origin.manifest or "")}
