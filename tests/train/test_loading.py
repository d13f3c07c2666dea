"""Every exported form is loaded and asked by the library that people use for it, in a process that knows no expert-cli."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from expert_cli.artifacts.export import export_expert
from expert_cli.config.plan import trained_adapter
from expert_cli.inference.expert import load_adapted, locate_base
from expert_cli.utils.reporter import NullReporter
from tests import tiny_gguf
from tests.train.projects import SEVEN, expert_of_seven, project, train

PROMPTS = [("Which number is 3?", ""), ("Which number is 4?", "and why")]
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


def exported(expert: Path, output: Path, **form: Any) -> Path:
    found = trained_adapter(expert, None, None, offline=True)
    export_expert(found, output, PROMPTS, NullReporter(), **{"merge": False, "gguf": None, **form})
    return output


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Train three experts, export them, and run the lines of all cards in one process: it imports the libraries once."""
    home = tmp_path_factory.mktemp("loading")
    own = expert_of_seven(home / "own", template="alpaca")
    nf4 = expert_of_seven(home / "nf4", "qwen3", "int4")
    tiny_gguf.write_gguf(home / "tiny.gguf")
    gguf = train(project(home / "gguf", home / "tiny.gguf", SEVEN, max_steps=20)).output
    adapters = [exported(expert, expert / "out") for expert in (own, nf4, gguf)]
    folders = [*adapters, nf4 / "adapter", exported(own, own / "merged", merge=True)]
    for expert, folder in ((own, own / "out"), (nf4, nf4 / "out"), (nf4, nf4 / "adapter")):  # a base model lies beside
        base = Path(trained_adapter(expert, None, None, offline=True).plan.run.model.name)
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
    found = trained_adapter(expert, None, None, offline=True)
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
    found = trained_adapter(told.gguf, None, None, offline=True)
    used = AutoModelForCausalLM.from_pretrained(locate_base(found.plan.run, NullReporter()).folder).state_dict()
    made = AutoModelForCausalLM.from_pretrained(told.gguf / "out" / "base").state_dict()
    assert used.keys() == made.keys()
    assert all(torch.equal(value, made[name]) for name, value in used.items())


def test_llama_cpp_reads_what_was_written(told: Told, tmp_path: Path) -> None:
    """Its template and its stops; its weights are compared by the export itself."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here: pip install xllamacpp")
    found = trained_adapter(told.own, None, None, offline=True)
    export_expert(found, tmp_path / "out", [], NullReporter(), merge=False, gguf="q8_0")
    params = xllamacpp.CommonParams()
    params.model.path = str(next((tmp_path / "out").glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.use_jinja = 128, 1, 1, True
    params.warmup = params.fit_params = False
    server = xllamacpp.Server(params)
    message = {"role": "user", "content": PROMPTS[0][0]}
    answer = server.handle_chat_completions({"messages": [message], "max_tokens": 8, "temperature": 0})["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == ("7", "stop")
