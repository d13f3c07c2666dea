"""A configuration of axolotl or TRL goes in, a manifest comes out; keys that have no like here are told, none drops out.

https://docs.axolotl.ai/docs/config-reference.html, https://huggingface.co/docs/trl/sft_trainer
"""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from expert_cli.errors import InputError
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.messages import unfit
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.paths import slug
from expert_cli.utils.text import one_line, shortened

_NOT_CARRIED = "not carried over"
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_ALL_WEIGHTS = "all weights would be trained, here an adapter is"
_LOSS = "the loss here is the cross entropy of the answers' tokens"
_MODEL = {"axolotl": "base_model", "TRL": "model_name_or_path"}
"""What names the base model in every configuration of a program."""
_RENAMED = (
    "num_epochs:epochs num_train_epochs:epochs micro_batch_size:batch_size per_device_train_batch_size:batch_size "
    "sequence_len:max_seq_length max_length:max_seq_length sample_packing:packing optimizer:optim "
    "lr_scheduler_type:lr_scheduler lora_r:rank lora_alpha:alpha lora_dropout:dropout lora_target_modules:target_modules "
    "tf32:use_tf32 sdp_attention:use_sdpa flash_attention:flash_attention_2 use_flash_attention_2:flash_attention_2 "
    "noisy_embedding_alpha:neftune_noise_alpha default_system_message:system_prompt"
)
_NAMED_ALIKE = (
    "max_seq_length learning_rate gradient_accumulation_steps lr_scheduler_kwargs warmup_ratio warmup_steps weight_decay "
    "max_grad_norm seed torch_compile torch_compile_backend torch_compile_mode group_by_length dataloader_num_workers "
    "dataloader_pin_memory dataloader_prefetch_factor logging_steps save_strategy save_steps save_total_limit max_steps "
    "packing lr_scheduler optim neftune_noise_alpha chat_template_kwargs completion_only_loss fsdp gradient_checkpointing "
    "report_to"
)
_SAME = dict(pair.split(":") for pair in _RENAMED.split()) | {name: name for name in _NAMED_ALIKE.split()}
"""Keys that say the same here, by their names there; the manifest's own check takes or refuses the value."""
_VALUES: Mapping[str, Mapping[Any, tuple[str, Any]]] = {
    **{key: {True: ("adapter_type", "dora")} for key in ("peft_use_dora", "use_dora")},
    **{key: {True: ("adapter_type", "rslora")} for key in ("peft_use_rslora", "use_rslora")},
    **{kind: {"full": (kind, True), True: (kind, True), False: (kind, False)} for kind in ("bf16", "fp16")},
    "lora_target_linear": {True: ("target_modules", "all-linear")},
    "train_on_inputs": {True: ("completion_only_loss", False), False: ("completion_only_loss", True)},
    "assistant_only_loss": {True: ("completion_only_loss", True)},
    "attn_implementation": {
        "sdpa": ("use_sdpa", True),
        "eager": ("use_sdpa", False),
        **dict.fromkeys(("flash_attention_2", "flash_attention_3"), ("flash_attention_2", True)),
    },
    "excess_length_strategy": {
        "raise": ("overflow", "error"),
        "drop": ("overflow", "drop"),
        "truncate": ("overflow", "truncate"),
    },
    "saves_per_epoch": {"1": ("save_strategy", "epoch")},
    "use_tensorboard": {True: ("report_to", ["tensorboard"])},
}
"""Keys of which some values say something here: the key and value here; no value and "auto" say what happens here anyway."""
_WORDS: Mapping[str, Mapping[str, str]] = {
    "optim": {"adamw_hf": "adamw_torch", "adamw_apex_fused": "adamw_torch_fused", "lion": "lion_32bit"},
    "target_modules": {"all": "all-linear"},
}
_TEMPLATES = {"mistral_v2v3": "mistral", "llama3": "llama", "phi_3": "phi", "phi_35": "phi", "deepseek_v3": "deepseek"}
_TEMPLATES |= {name: name for name in ("alpaca", "chatml", "gemma")}
_EVALUATION = ("eval_steps", "load_best_model_at_end", "early_stopping_patience", "metric_for_best_model")
_OF_PREFERENCES = (
    "rl trl reward_model process_reward_model beta num_generations reward_funcs reward_weights reward_model_path ref_model "
    "max_prompt_length max_completion_length desirable_weight undesirable_weight use_vllm"
)
_OF_OTHER_MODELS = ("processor_type", "image_size", "gptq", "relora", "qat", "kd_trainer")
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(_OF_PREFERENCES.split(), "preferences and rewards are TRL's own"),
    **dict.fromkeys(_OF_OTHER_MODELS, "text alone is trained here"),
    "pretraining_dataset": 'whole texts are rows: name them under datasets, with "type": completion',
    "label_smoothing_factor": _LOSS,
}
"""Keys that train something else, and what is said of them."""
_TARGETS = ["q_proj", "v_proj"]
_LORA = {"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "lora_target_modules": _TARGETS}
_LENGTHS = {"sequence_len": 512, "sample_packing": False, "excess_length_strategy": "drop"}
_STEPS = {"learning_rate": 2e-5, "num_train_epochs": 3, "per_device_train_batch_size": 8, "lr_scheduler_type": "linear"}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "axolotl": {**_LENGTHS, "lora_target_modules": _TARGETS},
    "TRL": {**_LORA, **_STEPS, "max_length": 1024, "packing": False, "gradient_checkpointing": True},
}
"""What a program does where its file does not say, if something else happens here."""
PREAMBLE = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
"""What axolotl writes before the instruction of Alpaca's form."""
_TOGETHER = (
    "adapter use_peft load_in_4bit load_in_8bit batch_size datasets test_datasets val_set_size dataset_name dataset_config "
    "dataset_train_split dataset_test_split dataset_mixture test_split_size eval_strategy evaluation_strategy evals_per_epoch "
    "do_train do_eval loss_type wandb_project dataset_text_field max_steps cosine_min_lr_ratio"
)
"""Keys that are read together with others, or that happen here anyway."""


@dataclass(frozen=True)
class NotCarried:
    """One key of theirs that the manifest does not have, its value as it is shown, and why."""

    key: str
    value: str
    reason: str


@dataclass
class Imported:
    """A manifest in the making.

    told: the file's keys, with what the program does where it does not say. carried: each key with its names here; none: it
    says what happens here anyway. files: texts that go beside the manifest, by their names.
    """

    program: str
    file: Path
    home: Path
    written: Mapping[str, Any]
    told: Mapping[str, Any]
    blocks: dict[str, dict[str, Any]] = field(default_factory=lambda: {"base": {}, "dataset": {}, "config": {}})
    carried: dict[str, list[str]] = field(default_factory=dict)
    not_carried: list[NotCarried] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, name: str, value: Any, block: str = "config") -> None:
        """Write a key of the manifest for one of theirs; one whose value does not fit is not carried."""
        blocks: dict[str, type[BaseModel]] = {"config": TrainingConfig, "dataset": Dataset}
        checked = blocks.get(block)
        words = _WORDS.get(name)
        if isinstance(value, str) and words:
            value = words.get(value, value)
        if checked and (why := unfit(checked, ("training", block, name), value)):
            self.lose(key, f"{name} {why}", value)
            return
        self.blocks[block][name] = value
        self.carried.setdefault(key, []).append(name)

    def lose(self, key: str, reason: str = _NOT_CARRIED, value: Any = None) -> None:
        """Note that a key is not carried over. value: where it is not the whole value of `key`."""
        shown = self.told.get(key) if value is None else value
        text = "(not written)" if shown is None else one_line(shown if isinstance(shown, str) else reprlib.repr(shown))
        self.not_carried.append(NotCarried(key, shortened(text, 48), reason))

    def refuse(self, key: str, reason: str) -> None:
        """Raise InputError: a key trains what is not trained here."""
        told = f"{self.file}, of {self.program}, trains what is not trained here: {key}"
        raise InputError(
            f"{told} {self.told.get(key, '(not written)')}: {reason}", "what is trained here: docs/FROM_OTHERS.md"
        )

    def path(self, written: str) -> str:
        """Return a path that leads somewhere as seen from the manifest's folder, another one (a hub id) as it is."""
        for folder in (Path(), self.file.parent):
            place = folder / written
            if written and place.exists():
                try:
                    return Path(os.path.relpath(place, self.home)).as_posix()
                except ValueError:  # another drive
                    return place.resolve().as_posix()
        return written

    @property
    def defaults(self) -> dict[str, list[str]]:
        """Keys that the file does not have, for which the manifest says what the program does."""
        return {
            key: names for key, names in self.carried.items() if re.split(r"[.[]", key)[0] not in self.written and names
        }

    def manifest(self) -> dict[str, Any]:
        """Return the manifest; what is not carried over stands in it as a comment."""
        config, ours = self.blocks["config"], [name for names in self.defaults.values() for name in names]
        said = (
            {"_defaults": f"{', '.join(ours)}: what {self.program} does where its file does not say."} if ours else {}
        )
        lost: dict[str, str] = {}
        for one in self.not_carried:
            lost[one.key] = f"{lost[one.key]}; {one.reason}" if one.key in lost else one.reason
        return {
            "_from": f"{self.file.name}, of {self.program}",
            "name": self.home.name,
            "version": "0.1.0",
            "schema_version": "2.0",
            "base_models": [self.blocks["base"]],
            "training": {
                "dataset": self.blocks["dataset"],
                "config": said | {key: config[key] for key in TrainingConfig.model_fields if key in config},
            },
            **({"_not_carried": lost} if lost else {}),
        }

    def as_json(self) -> dict[str, Any]:
        """Return what `init --json` tells of it."""
        unsaid = self.defaults
        return {
            "program": self.program,
            "carried": [{"key": key, "names": names} for key, names in self.carried.items() if key not in unsaid],
            "defaults": [{"key": key, "names": names} for key, names in unsaid.items()],
            "not_carried": [asdict(one) for one in self.not_carried],
        }


def import_config(file: Path, home: Path) -> Imported:
    """Return what a YAML file of axolotl or TRL becomes as the manifest of the expert in `home`.

    Raises InputError: the file cannot be read, is no configuration of theirs, or trains what is not trained here.
    """
    written = {str(key): _number(value) for key, value in _yaml(file).items() if value is not None}
    program = next((name for name, key in _MODEL.items() if written.get(key)), "")
    if not program:
        names = ", ".join(f"{name} ({key})" for name, key in _MODEL.items())
        raise InputError(
            f"{file}: no base model is named; known are configurations of {names}", "name the file of a training"
        )
    made = Imported(program, file, home, written, {**_DEFAULTS[program], **written})
    for key, value in made.told.items():
        if value not in _NOTHING and key in _REFUSED:
            made.refuse(key, _REFUSED[key])
        _carry(made, key, value)
    _weights(made)
    (_axolotl_rows if program == "axolotl" else _trl_rows)(made)
    _evaluation(made)
    return made


def _yaml(file: Path) -> Mapping[Any, Any]:
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise InputError(
            f"{file}: {told}", "correct the path after --from-config, or save the file as UTF-8"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise InputError(f"{file}{where}: {getattr(error, 'problem', None) or error}", "correct the YAML") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: holds no keys", "name the file of a training")
    return value


def _number(value: Any) -> Any:
    """A number that YAML 1.1 reads as text, like 2e-4, which has no point."""
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _carry(made: Imported, key: str, value: Any) -> None:  # noqa: PLR0912  a branch a kind of key
    """Write what one key says by itself."""
    if key in _MODEL.values():
        made.put(key, "name", made.path(str(value)), "base")
    elif key in ("lora_model_dir", "dataset_text_field") and value not in (*_NOTHING, "text"):
        adapter = key == "lora_model_dir"
        made.put(key, *(("init_adapter", made.path(value)) if adapter else ("text_field", value, "dataset")))
    elif key in ("chat_template", "chat_template_jinja", "chat_template_path") and isinstance(value, str):
        _template(made, key, value)
    elif key == "warmup_steps" and isinstance(value, float) and 0 < value < 1:
        made.put(key, "warmup_ratio", value)
    elif key == "lora_target_modules" and isinstance(value, str) and value not in ("all", "all-linear"):
        if set(value) & set("\\^$*()[]|"):
            made.lose(key, "a pattern is not read here: name the layers; all-linear is used")
        else:
            made.put(key, "target_modules", [name.strip() for name in value.split(",")])
    elif key in _VALUES:
        said = next((here for word, here in _VALUES[key].items() if word is value or word == str(value)), None)
        if said:
            made.put(key, *said)
        elif value in (*_NOTHING, "auto", "none"):
            made.carried.setdefault(key, [])
        else:
            made.lose(key)
    elif key in _SAME and not (key == "max_steps" and value in (-1, 0)):
        made.put(key, _SAME[key], " ".join(value) if key == "fsdp" and isinstance(value, list) else value)
    elif key in (*_TOGETHER.split(), *_EVALUATION):
        made.carried.setdefault(key, [])
    elif value not in _NOTHING:
        made.lose(key)


def _template(made: Imported, key: str, value: str) -> None:
    """A chat template: its name, its text, or the path of a file of it."""
    if "{" in value:
        made.files["chat_template.jinja"] = value
        made.put(key, "chat_template_path", "chat_template.jinja")
    elif value.endswith((".jinja", ".j2")):
        made.put(key, "chat_template_path", made.path(value))
    elif value in _TEMPLATES and key == "chat_template" and "chat_template_jinja" not in made.told:
        made.put(key, "prompt_template", _TEMPLATES[value], "base")
    elif value in ("tokenizer_default", "jinja", *_TEMPLATES):
        made.carried.setdefault(key, [])
    else:
        made.lose(key, "the tokenizer's own chat template is used")


def _weights(made: Imported) -> None:
    """How the base model is held, and that an adapter is trained."""
    told = made.told
    if made.program == "axolotl" and told.get("adapter") not in ("lora", "qlora"):
        made.refuse("adapter", "lora and qlora are read" if told.get("adapter") else _ALL_WEIGHTS)
    if made.program == "TRL" and told.get("use_peft") is not True:
        made.refuse("use_peft", _ALL_WEIGHTS)
    bits = "int8" if told.get("load_in_8bit") is True else "none"
    bits = "int4" if told.get("load_in_4bit") is True or told.get("adapter") == "qlora" else bits
    if told.get("loss_type") not in (None, "nll", "chunked_nll"):
        made.refuse("loss_type", _LOSS)
    if (ratio := told.get("cosine_min_lr_ratio")) is not None:
        made.put("cosine_min_lr_ratio", "lr_scheduler", "cosine_with_min_lr")
        made.put("cosine_min_lr_ratio", "lr_scheduler_kwargs", {"min_lr_rate": ratio})
    if told.get("wandb_project"):
        made.put("wandb_project", "report_to", ["wandb"])
    made.put("load_in_8bit" if bits == "int8" else "load_in_4bit", "quantization", bits, "base")
    size, micro = told.get("batch_size"), told.get("micro_batch_size")
    if isinstance(size, int) and isinstance(micro, int) and not told.get("gradient_accumulation_steps"):
        made.put("batch_size", "gradient_accumulation_steps", max(size // max(micro, 1), 1))
    if made.program == "axolotl" and told.get("warmup_steps") is None and told.get("warmup_ratio") is None:
        made.put("warmup_ratio", "warmup_ratio", 0.03)  # at most 100 steps there


def _axolotl_rows(made: Imported) -> None:
    train, valid = (
        [source for n, one in enumerate(_entries(made, name)) for source in _axolotl_source(made, f"{name}[{n}]", one)]
        for name in ("datasets", "test_datasets")
    )
    _write_rows(made, "datasets", train, valid)
    _split(made, "val_set_size", made.told.get("val_set_size"))


def _entries(made: Imported, name: str) -> list[dict[str, Any]]:
    entries = made.told.get(name) or []
    return [
        one if isinstance(one, dict) else {"path": one} for one in (entries if isinstance(entries, list) else [entries])
    ]


_Source = tuple[str, float, dict[str, Any]]
"""A place as a manifest names it, its weight, and its columns by role."""
_READ = ("path", "type", "split", "name", "data_files", "chat_template", "message_property_mappings", "roles")
_COLUMNS = {"messages": "field_messages", "tools": "field_tools", "system": "field_system"}
_COLUMNS |= {"role": "message_field_role", "content": "message_field_content"}


def _axolotl_source(made: Imported, key: str, told: dict[str, Any]) -> list[_Source]:
    form, kind = told.get("type"), str(told.get("type") or "").partition(":")[0]
    for name, value in told.items():
        if name == "chat_template_jinja":
            _template(made, name, str(value))
        elif name not in (*_READ, "field", *_COLUMNS.values()) and value not in _NOTHING:
            made.lose(f"{key}.{name}", value=value)
    columns: dict[str, Any] = {}
    if isinstance(form, dict):
        named = {"instruction": "field_instruction", "input": "field_input", "response": "field_output"}
        columns = {role: form[name] for role, name in named.items() if form.get(name)}
    elif kind.startswith(("chat_template", "sharegpt")):
        mapped = told.get("message_property_mappings") or {}
        columns = {"messages": "messages" if kind.startswith("chat_template") else "conversations"}
        columns |= {role: mapped[role] for role in ("role", "content") if mapped.get(role)}
        columns |= {role: told[name] for role, name in _COLUMNS.items() if told.get(name)}
        columns |= {"roles": told["roles"]} if told.get("roles") else {}
    elif kind in ("completion", "pretrain"):
        columns = {"text": told.get("field") or "text"}
    elif kind == "alpaca":
        made.put(f"{key}.type", "prompt_template", "alpaca", "base")
        if not made.written.get("default_system_message"):
            made.put(f"{key}.type", "system_prompt", PREAMBLE)
        made.lose(f"{key}.type", "the preamble for rows with an input is left: one stands before all rows", form)
    elif kind != "input_output":  # whose column is recognized
        made.lose(f"{key}.type", "this form is not known: name the columns in training.dataset.field_mapping", form)
    return _places(made, key, told, columns)


def _places(made: Imported, key: str, told: Mapping[str, Any], columns: dict[str, Any]) -> list[_Source]:
    """Return the places of one entry: its `data_files` where `path` is what `datasets` calls files, else its path."""
    path, files = str(told.get("path") or told.get("id") or ""), told.get("data_files") or []
    if isinstance(files, dict):
        files = files.get(told.get("split") or "train") or []
    split, config = str(told.get("split") or ""), str(told.get("config") or told.get("name") or "")
    if not path or path in ("json", "csv", "parquet", "arrow", "text"):
        found = [made.path(str(file)) for file in ([files] if isinstance(files, str) else files)]
    else:
        found = [made.path(path)]
        if files:
            made.lose(f"{key}.data_files", "a data set of the hub is read by its splits; download the file", files)
    weight = told.get("weight", told.get("fraction"))
    split = "" if split == "train" and not config else split
    rest = f"::{split}" + (f"::{config}" if config else "") if split or config else ""
    return [(place + rest, 1.0 if weight is None else weight, columns) for place in found]


def _trl_rows(made: Imported) -> None:
    told, valid = made.told, list[_Source]()
    mixture: dict[str, Any] = told["dataset_mixture"] if isinstance(told.get("dataset_mixture"), dict) else {}
    several = told.get("datasets") or mixture.get("datasets")
    share = ("dataset_mixture.test_split_size", mixture["test_split_size"]) if mixture.get("test_split_size") else ()
    evaluates = str(told.get("eval_strategy") or told.get("evaluation_strategy") or "no") != "no"
    if isinstance(several, list):
        train = list[_Source]()
        for number, one in enumerate(several):
            entry = one if isinstance(one, dict) else {"path": one}
            columns = {"messages": "messages"} if "messages" in (entry.get("columns") or ()) else {}
            train += _places(made, f"datasets[{number}]", entry, columns)
    else:
        entry = {"path": told.get("dataset_name"), "config": told.get("dataset_config")}
        train, valid = (
            _places(made, "dataset_name", {**entry, "split": told.get(f"dataset_{split}_split") or split}, {})
            for split in ("train", "test")
        )
    _write_rows(made, "dataset_name", train, valid if evaluates else [])
    if made.written.get("completion_only_loss") is None and not made.written.get("assistant_only_loss"):
        made.lose(
            "assistant_only_loss", "TRL trains whole texts where neither key is written, here the answers alone are"
        )
    if evaluates:
        _split(made, *(share or ("test_split_size", told.get("test_split_size"))))


def _write_rows(made: Imported, key: str, train: list[_Source], valid: list[_Source]) -> None:
    """Write the rows that train, and those that evaluate: one path, or several tasks."""
    if not train:
        made.refuse(key, "no data set is named")
    if len(train) == 1 and train[0][1] == 1:
        made.put(key, "path", train[0][0], "dataset")
        if valid:
            made.put(key, "validation_path", valid[0][0], "dataset")
    else:
        tasks: dict[str, dict[str, Any]] = {}
        for number, (place, weight, _) in enumerate(train):
            path = place.partition("::")[0]
            name = slug(path.rpartition(".")[0] if path.endswith((".json", ".jsonl")) else path)
            task = {"train": place} | ({"weight": weight} if weight != 1 else {})
            task |= {"valid": valid[number][0]} if number < len(valid) else {}
            tasks[name if name not in tasks else f"{name}-{number + 1}"] = task
        made.put(key, "type", "multi_task", "dataset")
        made.put(key, "tasks", tasks, "dataset")
    for place, *_ in valid[len(train) :]:
        made.lose(key, "there are more sources of validation rows than of training rows", place)
    mappings = [columns for *_, columns in (*train, *valid)]
    if all(columns == mappings[0] for columns in mappings):
        if mappings[0]:
            made.put(key, "field_mapping", mappings[0], "dataset")
    else:
        for place, _, columns in (*train, *valid):
            made.lose(
                f"{key} ({place})", f"field_mapping is one for all rows, and these differ; here: {columns}", place
            )


def _split(made: Imported, key: str, size: Any) -> None:
    """Write the share of the rows that is split off for evaluation."""
    if isinstance(size, float) and size < 1:
        made.put(key, "validation_split", size, "dataset")
    elif size:
        made.lose(key, "validation_split is a share of the rows", size)


def _evaluation(made: Imported) -> None:
    """Write when validation rows are evaluated, and what hangs on it, if there are such rows."""
    told, dataset = made.told, made.blocks["dataset"]
    has_rows = "validation_path" in dataset or "validation_split" in dataset
    has_rows = has_rows or any("valid" in task for task in dataset.get("tasks", {}).values())
    named = ("evals_per_epoch", "eval_strategy", "evaluation_strategy")
    asked = [key for key in (*named, *_EVALUATION) if told.get(key) not in (*_NOTHING, "no")]
    decides = next((key for key in (*named, "eval_steps") if key in asked), "")
    if not has_rows or not decides:
        for key in asked:
            made.lose(key, "no validation rows are named, or nothing says when they are evaluated")
        return
    made.put(decides, "eval_strategy", {"evals_per_epoch": "epoch", "eval_steps": "steps"}.get(decides, told[decides]))
    if decides == "evals_per_epoch" and told[decides] != 1:
        made.lose(decides, "evaluations come by steps or once an epoch; here once an epoch")
    for key in _EVALUATION:
        if key in asked:
            made.put(key, key, told[key])


def manifest_text(imported: Imported) -> str:
    """Return the JSON text of the manifest."""
    return json.dumps(imported.manifest(), indent=2, ensure_ascii=False) + "\n"
