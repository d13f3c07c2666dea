"""A configuration of another trainer becomes a manifest, and no key of it drops out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.resolve import decide
from expert_cli.errors import InputError
from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.registry import PROGRAMS, carry_over, import_config, manifest_text, which_program
from expert_cli.manifest.importers.yaml_file import read_yaml
from expert_cli.manifest.reader import load_manifest
from tests.machines import CPU
from tests.unit.manifest.importers.configs import AXOLOTL, SMALL, TRL, config_of, imported, reasons


@pytest.mark.parametrize("program", SMALL)
def test_the_program_is_told_by_the_keys(tmp_path: Path, program: str) -> None:
    assert imported(tmp_path, SMALL[program]).program == program


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("value", ["x", True, 0.5, ["x"], {"datasets": [3]}], ids=repr)
def test_no_key_drops_out_whatever_its_value(tmp_path: Path, program: Any, value: Any) -> None:
    (tmp_path / "config.yml").write_text(SMALL[program.name], encoding="utf-8")
    small = read_yaml(tmp_path / "config.yml")
    for key in program.keys:
        try:
            made = carry_over({**small, key: value}, tmp_path / "config.yml", "boats", tmp_path / "boats")
        except InputError:
            continue
        told = [*made.carried, *(one.key for one in made.not_carried)]
        assert any(re.split(r"[.[]", one)[0] == key for one in told), key


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_program_does_by_itself_is_a_key_here(tmp_path: Path, program: Any) -> None:
    for key, value in program.defaults.items():
        draft = Draft({}, {key: value}, tmp_path, tmp_path)
        program.keys[key](draft, key, value)
        assert (bool(draft.carried[key]), draft.not_carried, draft.refused) == (True, [], []), key


@pytest.mark.parametrize("program", SMALL)
def test_the_manifest_is_read_and_decided(tmp_path: Path, program: str) -> None:
    made = imported(tmp_path, SMALL[program])
    (tmp_path / "boats").mkdir()
    path = tmp_path / "boats" / "manifest.json"
    path.write_text(manifest_text(made), encoding="utf-8")
    loaded = load_manifest(path)
    run, _ = decide(loaded, CPU)
    assert (run.expert, run.model.name, loaded.warnings) == ("boats", "Qwen/Qwen3-0.6B", ())


def test_what_the_file_does_not_say_is_told_apart(tmp_path: Path) -> None:
    made = imported(tmp_path, TRL)
    config = config_of(made)
    assert config == {
        "rank": 16,
        "alpha": 32,
        "dropout": 0.05,
        "target_modules": ["q_proj", "v_proj"],
        "epochs": 3,
        "learning_rate": 2e-5,
        "lr_scheduler": "linear",
        "batch_size": 8,
        "max_seq_length": 1024,
        "packing": False,
        "gradient_checkpointing": True,
        "completion_only_loss": True,
    }
    said = {name for names in made.carried.values() for name in names}
    assert said == {"name", "path", "completion_only_loss"}
    unsaid = {name for names in made.defaults.values() for name in names}
    assert unsaid == {*config, "quantization"} - said
    assert all(name in made.manifest["training"]["config"]["_defaults"] for name in unsaid)


def test_a_default_gives_way_to_another_key_that_says_the_same(tmp_path: Path) -> None:
    made = imported(tmp_path, AXOLOTL)
    assert config_of(made)["target_modules"] == "all-linear"
    assert "lora_target_modules" not in made.defaults


def test_a_key_that_nobody_knows_is_told(tmp_path: Path) -> None:
    made = imported(tmp_path, f"{AXOLOTL}\nflux_capacitor: 88\nempty:\nnone_of: []\n")
    assert reasons(made) == {"flux_capacitor": "not carried over"}
    assert made.manifest["_not_carried"] == {"flux_capacitor": "not carried over"}
    assert made.as_json()["not_carried"] == [{"key": "flux_capacitor", "value": "88", "reason": "not carried over"}]


def test_a_key_that_is_misspelled_is_told_with_the_one_that_is_meant(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        AXOLOTL.replace("type: chat_template", "type: chat_template\n    field_mesages: turns\n") + "\nlora_alhpa: 8\n",
    )
    assert reasons(made) == {
        "lora_alhpa": "not carried over; did you mean lora_alpha?",
        "datasets[0].field_mesages": "not carried over; did you mean field_messages?",
    }


def test_a_value_that_does_not_fit_is_told_with_the_key_here(tmp_path: Path) -> None:
    text = AXOLOTL.replace("lora_r: 8", "lora_r: 0").replace("num_epochs: 3", "num_epochs: many")
    made = imported(tmp_path, text)
    assert reasons(made) == {"lora_r": "rank must be greater than 0, is 0", "num_epochs": "here it is a number"}
    assert not {"rank", "epochs"} & config_of(made).keys()


def test_settings_that_the_scheduler_lacks_are_left_out(tmp_path: Path) -> None:
    kwargs = "lr_scheduler_kwargs: {min_lr_rate: 1e-1, num_cycles: 2}"
    made = imported(tmp_path, f"{TRL}\nlr_scheduler_type: cosine\n{kwargs}")
    assert config_of(made)["lr_scheduler_kwargs"] == {"num_cycles": 2}
    assert reasons(made) == {"lr_scheduler_kwargs.min_lr_rate": "cosine has no such setting"}


REFUSED = {
    "all weights, axolotl": (AXOLOTL.replace("adapter: qlora", ""), "adapter (not written): all weights"),
    "all weights, TRL": (TRL.replace("use_peft: true", ""), "use_peft (not written): all weights"),
    "another adapter": (AXOLOTL.replace("qlora", "oft"), "adapter oft: the adapters"),
    "preferences, axolotl": (f"{AXOLOTL}\nrl: dpo", "rl dpo: preferences and rewards"),
    "preferences, TRL": (f"{TRL}\nbeta: 0.1", "beta 0.1: preferences and rewards"),
    "rewards, TRL": (f"{TRL}\nnum_generations: 8", "num_generations 8: preferences and rewards"),
    "images, axolotl": (f"{AXOLOTL}\nprocessor_type: AutoProcessor", "processor_type AutoProcessor: text alone"),
    "another loss": (f"{TRL}\nloss_type: dft", "loss_type dft: the loss here"),
    "no rows": (TRL.replace("dataset_name: corpora/tickets", ""), "dataset_name (not written): no data set"),
}


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_trains_something_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        imported(tmp_path, text)
    assert f"trains what is not trained here: {told}" in caught.value.message
    assert str(tmp_path / "config.yml") in caught.value.message


def test_every_reason_to_refuse_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        imported(tmp_path, f"{AXOLOTL}\nrl: kto\nreward_model: true\nprocessor_type: AutoProcessor")
    assert caught.value.message.count("preferences") == 1
    assert "; rl kto: " in caught.value.message


def test_a_file_without_a_base_model_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no base model is named.*axolotl \(base_model\).*TRL \(model_name_or_path\)"):
        which_program(tmp_path / "x.yml", {"compute_environment": "LOCAL_MACHINE"})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yml: No such file"):
        import_config(tmp_path / "none.yml", "boats", tmp_path / "boats")
