"""Exported forms answer as base model and adapter do, load in a process that knows no expert-cli; nothing is overwritten."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedModel

from expert_cli.artifacts.export import compare, export_expert, log_probs, require_alike
from expert_cli.artifacts.gguf_writer import require_writable, write_gguf
from expert_cli.config.plan import TrainedAdapter
from expert_cli.errors import InputError, IntegrityError, RunLocked
from expert_cli.inference.expert import load_adapted
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.model.loading.base_model import locate_base
from expert_cli.model.loading.gguf import load_gguf
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.runs.metrics import read_json
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests import tiny, tiny_gguf
from tests.schemas import valid
from tests.train.projects import SEVEN, command, expert_of_seven, manifest_with, project, train, trained_in
from tests.words import Words

PROMPTS = [(f"Which number is {n}?", "") for n in range(8)]
CHAT = "<|im_start|>user\nWhich number is 3?<|im_end|>\n<|im_start|>assistant\n"


def exported(expert: Path, output: Path, **form: Any) -> dict[str, Any]:
    return export_expert(trained_in(expert), output, PROMPTS, NullReporter(), **{"merge": False, "gguf": None, **form})


def answer(model: Any, tokenizer: Any, **stop: int) -> str:
    ids = tokenizer(CHAT, return_tensors="pt", add_special_tokens=False)
    written = model.generate(**ids, max_new_tokens=8, do_sample=False, pad_token_id=2, **stop)
    text: str = tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    return text


def test_the_json_schema_of_answers_lies_beside_them(expert: Path, tmp_path: Path) -> None:
    schema = {"type": "integer"}
    manifest = manifest_with(expert, use_grammar=True, grammar_type="json-schema", json_schema=schema)
    found = trained_in(expert, manifest)
    export_expert(found, tmp_path / "out", [], NullReporter(), merge=False, gguf=None)
    assert read_json(tmp_path / "out" / "schema.json") == schema


def test_an_exported_adapter_is_compared_with_its_base_model(tmp_path: Path) -> None:
    """One answers 7, one learned nothing."""
    for name, rate in (("seven", {}), ("none", {"learning_rate": 1e-12, "max_steps": 1})):
        expert, report = expert_of_seven(tmp_path / name, **rate), Words()
        done = export_expert(trained_in(expert), tmp_path / f"{name}-out", PROMPTS, report, merge=False, gguf=None)
        assert ("warning: the adapter changes nothing" in "\n".join(report.lines)) == (name == "none")
        assert (done["agreement"]["base"]["top1"] == 1.0) == (name == "none")
        assert f"base: the most likely token is the trained model's at {done['agreement']['base']['top1']:.1%}" in (
            tmp_path / f"{name}-out" / "README.md"
        ).read_text(encoding="utf-8")


def test_an_adapter_on_an_untied_head_holds_its_factors_alone(tmp_path: Path) -> None:
    """PEFT would add the head's own matrix: 2.5 GB of Qwen3-8B."""
    base = tiny.tiny_model_folder(tmp_path / "untied", tie_word_embeddings=False)
    done = train(project(tmp_path, base, max_steps=1, target_modules=["lm_head"]))
    names = load_file(done.output / "adapter" / "adapter_model.safetensors").keys()
    assert sorted(names) == [f"base_model.model.lm_head.lora_{half}.weight" for half in "AB"]


LLAMA_CPP = "- llama.cpp: `convert_lora_to_gguf.py`, then `--lora`"
SERVERS: dict[str, tuple[bool, str, str]] = {
    "lora": (True, "--max-lora-rank 16`", LLAMA_CPP),
    "rslora": (True, "--max-lora-rank 16`", "- llama.cpp: scales rsLoRA wrongly"),
    "dora": (False, "- vLLM: refuses DoRA", "- llama.cpp: refuses DoRA"),
    "token rows": (False, "--max-lora-trainable-tokens 1`", "refuses trained token rows"),
}
"""Of every kind of adapter: whether all names are those that vLLM and llama.cpp read, and what the card says of both."""


@pytest.mark.parametrize("kind", SERVERS)
def test_every_name_of_an_adapter_is_one_that_servers_read_or_the_card_says_that_they_do_not(
    tmp_path: Path, kind: str
) -> None:
    """The rules of vLLM (parse_fine_tuned_lora_name) and of the converter of adapters in llama.cpp."""
    how: dict[str, Any] = {"adapter_type": kind} if kind != "token rows" else {"trainable_token_indices": ["a"]}
    manifest = project(tmp_path, max_steps=1, rank=12, **how)
    folder = train(manifest).output / "adapter"
    names = load_file(folder / "adapter_model.safetensors").keys()
    layers = {
        f"base_model.model.{name}"
        for name, module in tiny.tiny_model().named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    }
    read = {f"{layer}.lora_{half}.weight" for layer in layers for half in "AB"}
    are_read, vllm, llama_cpp = SERVERS[kind]
    assert (names == read, names >= read) == (are_read, True)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert vllm in card
    assert llama_cpp in card


def test_an_adapter_of_bf16_is_merged_with_the_codes_of_bf16(tmp_path: Path) -> None:
    """The weights are stored in fp32: quantized so, one code in a hundred is another one than training had."""
    expert = expert_of_seven(tmp_path / "expert", quantization="int4", bf16=True, max_steps=2)
    exported(expert, tmp_path / "out", merge=True)
    plan = trained_in(expert)
    assert plan.origin.dtype == "bf16"
    elsewhere = replace(plan.plan.run, compute=replace(plan.plan.run.compute, dtype="fp32"))
    moved = replace(plan, plan=replace(plan.plan, run=elsewhere))
    export_expert(moved, tmp_path / "there", [], NullReporter(), merge=True, gguf=None)
    assert sha256_of(tmp_path / "there" / "model.safetensors") == sha256_of(tmp_path / "out" / "model.safetensors")
    require_merged(AutoModelForCausalLM.from_pretrained(tmp_path / "out").float(), plan)


def require_merged(model: Any, plan: TrainedAdapter) -> None:
    """Hold every weight against W + scaling B A in fp64, rounded once to bf16.

    A rounding to bf16 moves a number by 2**-8 of it at most. The tool adds in fp32: rank + 2 roundings of 2**-24 of what
    was added up, less than 2**-20.
    """
    run, adapter = plan.plan.run, plan.origin.adapter
    assert plan.origin.dtype is not None
    trained_in = replace(run, compute=replace(run.compute, dtype=plan.origin.dtype))
    base = load_adapted(trained_in, locate_base(run, NullReporter()), adapter, widened=True)
    written = load_file(adapter / "adapter_model.safetensors")
    scaling = run.adapter.alpha / run.adapter.rank
    assert run.adapter.rank <= 14
    for name in sorted(name for name in written if name.endswith("lora_A.weight")):
        layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        weight = base.get_base_model().get_submodule(layer).base_layer.weight.double()
        up, down = written[name.replace("lora_A", "lora_B")].double(), written[name].double()
        exact = weight + scaling * up @ down
        allowed = 2**-8 * exact.abs() + 2**-20 * (weight.abs() + scaling * up.abs() @ down.abs())
        merged = model.get_submodule(layer).weight.double()
        assert ((merged - exact).abs() <= allowed).all(), layer
        assert ((merged - weight).abs() > allowed).any(), layer


@pytest.mark.parametrize(("kind", "trained"), [("q8_0", ()), ("f16", ("qwen3", "int4"))])
def test_gguf_loads_in_transformers_and_answers(
    trained_expert: Callable[..., Path], tmp_path: Path, kind: str, trained: tuple[str, ...]
) -> None:
    expert = trained_expert(*trained)
    done = exported(expert, tmp_path / "out", gguf=kind)
    (found,) = done["agreement"].values()
    assert (found["prompts"], found["tokens"], found["top1"]) == (
        20,
        40,
        1.0,
    )  # 8 prompts and 12 training rows; "7" and the end
    assert found["max_kl"] < 1e-4
    file = tmp_path / "out" / f"expert-small-{kind}.gguf"
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", gguf_file=file.name)
    assert answer(model, tiny.tiny_tokenizer()) == "7", "the file says what ends it"
    kinds = {tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors if len(tensor.shape) > 1}
    assert kinds == {kind.upper()}
    modelfile = (tmp_path / "out" / "Modelfile").read_text(encoding="utf-8")
    assert f"FROM ./{file.name}\n" in modelfile
    assert "PARAMETER temperature 0.7\nPARAMETER top_p 0.9\n" in modelfile


def test_gguf_holds_every_matrix_of_a_llama(tmp_path: Path) -> None:
    """Of an attention that is sure of itself: transformers reads the rows of its queries and keys in another order."""
    model, info = tiny.tiny_model(initializer_range=0.2), load_tokenizer(tiny.tiny_model_folder(tmp_path / "m"))
    write_gguf(tmp_path / "f16", model, PromptRenderer(info, tiny.template_for(info.hf)), name="m", kind="f16")
    texts = [(3, list(range(3, 40)))]
    found = compare(load_gguf(tmp_path / "f16", torch.float32), texts, log_probs(model, texts))
    assert found["max_kl"] < 1e-3


def test_the_command(expert: Path, tmp_path: Path) -> None:
    args = ["export", "--adapter", expert, "--output", tmp_path / "out", "--merge", "--gguf", "q8_0"]
    done = command(*args, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    valid(document, "export")
    ends = [read_json(tmp_path / "out" / name)["eos_token_id"] for name in ("config.json", "generation_config.json")]
    assert ends[0] == ends[1] == [2, 0], "some programs read one, some the other"
    assert document["forms"] == ["merged", "gguf q8_0"]
    for file in document["files"]:
        assert sha256_of(tmp_path / "out" / file["path"]) == file["sha256"]
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        "merged: the most likely token is the trained model's at 100.0% of 40 positions of 20 answers, largest KL"
        in card
    )
    again = command(*args)
    assert isinstance(again.exception, RunLocked)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_adapter_of_another_base_model_is_refused(expert: Path, tmp_path: Path) -> None:
    other = tiny.tiny_model_folder(tmp_path / "other", initializer_range=0.2)
    done = command("export", "--adapter", expert, "--base-model", other, "--output", tmp_path / "out")
    assert isinstance(done.exception, InputError)
    assert "was trained on" in done.exception.message
    assert not (tmp_path / "out").exists()


def test_what_was_written_is_read_again_and_a_failure_leaves_nothing(
    expert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedModel.save_pretrained

    def spoiling(model: Any, folder: Path, **how: Any) -> None:
        save(model, folder, **how)
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"].fill_(float("nan"))
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", spoiling)
    with pytest.raises(IntegrityError, match="the written model differs from the trained one"):
        exported(expert, tmp_path / "out", merge=True)
    assert [*tmp_path.iterdir()] == []


def test_no_path_of_this_machine_leaves(expert: Path, tmp_path: Path) -> None:
    """The base model's name in the manifest is an absolute path."""
    base = Path(trained_in(expert).plan.run.model.name)
    assert base.is_absolute()
    exported(expert, tmp_path / "adapter")
    exported(expert, tmp_path / "whole", merge=True, gguf="f16")
    files = [path for folder in (expert / "adapter", *tmp_path.iterdir()) for path in folder.iterdir()]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix not in (".gguf", ".safetensors")}
    assert len(texts) == 24
    (file,) = (path for path in files if path.suffix == ".gguf")
    texts[file] = str([field.contents() for field in gguf.GGUFReader(file).fields.values()])
    assert [path for path, text in texts.items() if str(base.parent) in text or str(tmp_path) in text] == []
    for folder in (expert / "adapter", tmp_path / "adapter"):
        assert json.loads(texts[folder / "adapter_config.json"])["base_model_name_or_path"] == base.name
        assert f"base_model: {base.name}\n" in texts[folder / "README.md"]


def flipped(model: torch.nn.Module, name: str) -> None:
    weight = model.get_parameter(name)
    weight.data = weight.data.flip(0)


SPOILED: dict[str, Callable[[torch.nn.Module], None]] = {
    "a matrix in another order": lambda model: flipped(model, "model.layers.1.self_attn.q_proj.weight"),
    "a norm that is no number": lambda model: model.get_parameter("model.norm.weight").data.fill_(float("nan")),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_what_is_not_what_was_trained_is_refused(spoil: Callable[[torch.nn.Module], None]) -> None:
    model = tiny.tiny_model(initializer_range=0.2)
    texts = [(3, list(range(3, 40))), (1, [7, 8, 9])]
    meant = log_probs(model, texts)
    assert compare(model.bfloat16().float(), texts, meant)["max_kl"] < 0.01
    spoil(model)
    with pytest.raises(IntegrityError, match="the written model differs from the trained one"):
        require_alike("merged", compare(model, texts, meant))


def test_what_gguf_cannot_hold_is_refused(tmp_path: Path) -> None:
    info, llama = (
        load_tokenizer(tiny.tiny_model_folder(tmp_path / "m")),
        {"model_type": "llama", "head_dim": 16, "vocab_size": 384},
    )
    with pytest.raises(InputError, match="the architecture gemma3 is not written here") as caught:
        require_writable(SimpleNamespace(model_type="gemma3"), {}, info)
    assert "python convert_hf_to_gguf.py FOLDER --outfile X.gguf" in caught.value.hint
    with pytest.raises(InputError, match="of the type llama3"):
        require_writable(SimpleNamespace(**llama), {"rope_type": "llama3"}, info)
    with pytest.raises(InputError, match="would read head_dim 16 as 128"):
        require_writable(SimpleNamespace(**llama | {"model_type": "qwen3"}), {}, info)
    with pytest.raises(InputError, match="ids up to 383, but the embedding has 380 rows"):
        require_writable(SimpleNamespace(**llama | {"vocab_size": 380}), {}, info)
    info.backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(InputError, match="without a name here"):
        require_writable(SimpleNamespace(**llama), {}, info)


TWO_PROMPTS = [("Which number is 3?", ""), ("Which number is 4?", "and why")]
IDS = list(range(3, 40))
READER = """
import contextlib, io, json, os, re, sys
import torch
from peft import AutoPeftModelForCausalLM

told = {}
for folder in json.loads(sys.argv[1]):
    os.chdir(folder)
    with open("README.md", encoding="utf-8") as card:
        *_, loading = re.findall("<!-- Loading -->.*<!-- end of Loading -->", card.read(), re.DOTALL)
    names, said = {}, io.StringIO()
    blocks = re.findall("```python\\n(.*?)```", loading, re.DOTALL)
    with contextlib.redirect_stdout(said):
        for block in reversed(blocks):  # the base model that is made elsewhere comes before it is loaded
            exec(block, names)
    model = names["model"]
    with torch.no_grad():
        logits = model(torch.tensor([json.loads(sys.argv[2])])).logits[0].float().tolist()
    told[folder] = {"said": said.getvalue().strip(), "logits": logits}
    if os.path.exists("adapter_config.json") and not os.path.exists("gguf"):
        told[folder]["auto"] = type(AutoPeftModelForCausalLM.from_pretrained(".").get_base_model()).__name__
told["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Told:
    """What the process found in each folder, and the experts that went into them."""

    own: Path
    nf4: Path
    gguf: Path
    folders: dict[str, Any]


def exported_to(expert: Path, output: Path, **form: Any) -> Path:
    found = trained_in(expert)
    export_expert(found, output, TWO_PROMPTS, NullReporter(), **{"merge": False, "gguf": None, **form})
    return output


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Train three experts, export them, and run the lines of all cards in one process: it imports the libraries once."""
    home = tmp_path_factory.mktemp("loading")
    own = expert_of_seven(home / "own", template="alpaca")
    nf4 = expert_of_seven(home / "nf4", "qwen3", "int4")
    tiny_gguf.write_gguf(home / "tiny.gguf")
    gguf = train(project(home / "gguf", home / "tiny.gguf", SEVEN, max_steps=20)).output
    adapters = [exported_to(expert, expert / "out") for expert in (own, nf4, gguf)]
    folders = [*adapters, nf4 / "adapter", exported_to(own, own / "merged", merge=True)]
    for expert, folder in ((own, own / "out"), (nf4, nf4 / "out"), (nf4, nf4 / "adapter")):  # a base model lies beside
        base = Path(trained_in(expert).plan.run.model.name)
        (folder / base.name).symlink_to(base)
    (gguf / "out" / "gguf").mkdir()
    shutil.copy(home / "tiny.gguf", gguf / "out" / "gguf")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-W", "ignore", "-c", READER, json.dumps([*map(str, folders)]), json.dumps(IDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Told(own, nf4, gguf, json.loads(done.stdout.splitlines()[-1]))


def test_every_form_answers_without_a_module_of_ours(told: Told) -> None:
    assert {"peft", "transformers", "bitsandbytes"} <= set(told.folders["modules"])
    assert "expert_cli" not in told.folders["modules"]

    folders = [told.own / "out", told.nf4 / "out", told.gguf / "out", told.own / "merged"]
    assert [told.folders[str(folder)]["said"] for folder in folders] == ["7"] * 4
    assert told.folders[str(told.nf4 / "adapter")]["said"]  # the run's own adapter: its card asks what no row says

    kinds = [told.folders[str(folder)]["auto"] for folder in (told.own / "out", told.nf4 / "adapter")]
    assert kinds == ["LlamaForCausalLM", "Qwen3ForCausalLM"]


def logits(expert: Path, quantization: str) -> torch.Tensor:
    """Return the logits of base model and adapter, the base held in this way."""
    found = trained_in(expert)
    run = replace(found.plan.run, model=replace(found.plan.run.model, quantization=quantization))  # type: ignore[arg-type]
    with torch.no_grad():
        model: Any = load_adapted(run, locate_base(run, NullReporter()), found.origin.adapter)
        found_logits: torch.Tensor = model(torch.tensor([IDS])).logits[0].float()
    return found_logits


def test_the_lines_load_the_weights_that_were_trained_on(told: Told) -> None:
    """Not those in bf16. bitsandbytes itself rounds to bf16 where a CPU has AVX512-BF16, hence the bound."""
    as_trained = logits(told.nf4, "int4")
    elsewhere = (logits(told.nf4, "none") - as_trained).square().mean().sqrt()
    for folder in ("out", "adapter"):
        loaded = torch.tensor(told.folders[str(told.nf4 / folder)]["logits"])
        assert (loaded - as_trained).square().mean().sqrt() < 0.5 * elsewhere


def test_a_base_model_that_no_hub_has_is_made_by_the_card(told: Told) -> None:
    """The block that makes it was run: the folder is there, with the weights that training used."""
    found = trained_in(told.gguf)
    used = AutoModelForCausalLM.from_pretrained(locate_base(found.plan.run, NullReporter()).folder).state_dict()
    made = AutoModelForCausalLM.from_pretrained(told.gguf / "out" / "base").state_dict()
    assert used.keys() == made.keys()
    assert all(torch.equal(value, made[name]) for name, value in used.items())
