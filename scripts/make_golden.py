"""Record what the commands print and write, to compare after a change that must change no result.

    python -m scripts.make_golden                     # make tests/golden/commands anew
    python -m scripts.make_golden --check             # compare with it and write nothing; exit code 1: something differs
    python -m scripts.make_golden --runs OUT          # record six seeded trainings; only the same machine repeats them
    python -m scripts.make_golden --compare A B       # what differs between two such recordings
    python -m scripts.make_golden --keep-runs OUT     # beside a recording, leave two runs to be opened later
    python -m scripts.make_golden --open-runs OUT     # open them: what is other than it was

Knows the command line and plain data files, no module of the package: those may be moved and renamed between two recordings.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
COMMANDS = GOLDEN / "commands"
SHARED = Path(os.environ.get("EXPERT_CLI_MANIFESTS", ROOT.parent / "shared" / "manifests")).resolve()
"""Manifests of other people, where they are on this machine. Their text is not ours: only hashes of the answers are kept."""
EXPERTS = ("expert-json", "expert-neo4j", "expert-sql", "expert-typescript")
ORDERS = Path("examples", "orders")
DROPPED = (
    "NO_COLOR",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "PY_COLORS",
    "TTY_COMPATIBLE",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
)
LIBRARIES = ("torch", "transformers", "datasets", "accelerate", "bitsandbytes", "peft")
VARIES = "<varies>"
VARYING = (
    # time and speed
    *("*seconds", "*.seconds_*", "*tokens_per_s", "*mb_per_s", "*.mfu", "*.mfu_peak", "*.step_time_shares.*", "*.cost"),
    *("*.last_used", "*.last_used_from", "*.started", "*.updated", "*.pid", "*.birth", "*.host"),
    # the machine and its memory
    *("*.peak_memory_mb", "*.vram_mb.process", "*.vram_mb.heap", "*.vram_mb.total", "*.machine.*", "*.torch_threads"),
    *("*.versions.*", "*.encoder", "*.identity.code", "*.peft_version", "*.transformers_version"),
    # the last bits of floating-point sums, which are those of the processor, and whatever is made from them
    *("train.document.loss.*", "*.eval_loss", "*.adapter_sha256", "*.base_sha256", "*.model.sha256"),
    *("*.forgetting.loss_*", "*.forgetting.difference", "*.forgetting.ci95*", "*.forgetting.sha256"),
    *("*.identity.base model", "*base_model.json.sha256", "*.samples.*.before", "*.samples.*.after", "*.right_*"),
    *("export.document.files.*.bytes", "export.document.files.*.sha256", "chat.document.expert"),
    *(
        f"evaluate.*.{name}"
        for name in ("correct", "accuracy", "ci95", "failures", "difference", "tokens", "cut_off", "looping")
    ),
    *(f"evaluate.*.{name}" for name in ("kind", "detail", "answer", "stop")),
)
"""Which values are not compared, by where they stand; only that there is one."""
TEXTS = (
    (r"\b\d+ CPU cores", "<n> CPU cores"),
    (r"[\d,]+ MB are free", "<n> MB are free"),
    (r"keeps these weights unpacked, in \w+;", "keeps these weights unpacked, in <dtype>;"),
)
"""Parts of sentences that tell of the machine."""
MEASURED = ("*seconds", "*tokens_per_s", "*.mfu", "*.step_time_shares.*", "*.peak_memory_mb")
"""Which values no machine repeats."""
FIXED = ("benchmark-run", "report", "evaluate-answers", "schema")
"""Commands whose answers rest on kept files alone: nothing of them varies."""
ROWS = [
    {"instruction": f"Add {a} and {b}.", "input": "", "output": str(a + b)} for a in range(1, 9) for b in range(1, 9)
]
CASES: list[dict[str, Any]] = [
    {"id": f"n{n}", "category": "even" if n % 2 == 0 else "odd", "verifier": "json", "prompt": f"Add {n} and 9."}
    | {"schema": None, "expected": n + 9, "rule": "exact"}
    for n in range(1, 5)
]
CONFIG: dict[str, Any] = {
    "adapter_type": "lora",
    "rank": 4,
    "alpha": 8,
    "learning_rate": 0.02,
    "lr_scheduler": "cosine",
    "batch_size": 4,
    "max_steps": 4,
    "max_seq_length": 64,
    "logging_steps": 1,
    "packing": True,
    "bf16": False,
    "fp16": False,
}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama-nf4-packed": ("llama", "int4", {"bf16": True, "warmup_steps": 1, "weight_decay": 0.01}),
    "llama-bf16-padded": ("llama", "none", {"bf16": True, "packing": False, "dropout": 0.1}),
    "llama-fp32-dora": ("llama", "none", {"adapter_type": "dora", "neftune_noise_alpha": 5.0}),
    "qwen3-nf4-padded": ("qwen3", "int4", {"bf16": True, "packing": False, "gradient_accumulation_steps": 2}),
    "qwen3-bf16-packed": ("qwen3", "none", {"bf16": True, "eval_steps": 2, "gradient_checkpointing": True}),
    "qwen3-nf4-dora": ("qwen3", "int4", {"bf16": True, "adapter_type": "dora", "packing": "best_fit"}),
}
"""Name -> architecture, quantization, what is added to CONFIG."""
NOT_COMPARED = ("identity.code",)
"""Parts of two recordings of --runs that differ whenever a source file does."""


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str


class Commands:
    """Runs `python -m expert_cli` in children of this process, which has the libraries loaded: a fork costs no import.

    folder: where they run, and where their caches and home lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
        self.environment = kept | {
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "home" / "cache"),
            "HF_HOME": str(folder / "hf"),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONIOENCODING": "utf-8",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        os.environ.update(self.environment)  # before the libraries read it
        for name in LIBRARIES:
            importlib.import_module(name)

    def start(self, *words: str | Path) -> int:
        """Start a command and return its process id."""
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os._exit(self._run([str(word) for word in words]))
        return child

    def _run(self, words: list[str]) -> int:
        try:
            os.chdir(self.folder)
            os.environ.clear()
            os.environ.update(self.environment)
            for number, name in ((1, "out"), (2, "err")):
                file = os.open(self.folder / f".{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(file, number)
            sys.path.insert(0, str(ROOT / "src"))
            sys.argv = ["expert-cli", *words]
            runpy.run_module("expert_cli", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except Exception:  # noqa: BLE001  a child never goes on in the code of its parent
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0

    def run(self, *words: str | Path) -> Ran:
        """Run a command to its end."""
        _, status = os.waitpid(self.start(*words), 0)
        out, err = ((self.folder / name).read_text(encoding="utf-8") for name in (".out", ".err"))
        return Ran(os.waitstatus_to_exitcode(status), out, err)

    def json(self, *words: str | Path) -> dict[str, Any]:
        """Return the exit code and the document of a command that is asked for one. Ends this script where it prints none."""
        ran = self.run(*words, "--json")
        try:
            return {"exit_code": ran.code, "document": json.loads(ran.out)}
        except ValueError:
            sys.exit(f"expert-cli {' '.join(map(str, words))} --json: exit code {ran.code}\n{ran.out}{ran.err}")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_of(folder: Path) -> list[str]:
    """Return the files below a folder, hidden ones left out."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts))


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def stable(value: Any, where: str, named: Mapping[str, str], varying: Sequence[str] = VARYING) -> Any:
    """Return a value without what differs from machine to machine. where: its place, such as `train.document.steps`.

    named: folder -> the word that stands for it.
    """
    if any(fnmatchcase(where, pattern) for pattern in varying):
        return VARIES
    if isinstance(value, dict):
        if varying and value.get("key") == "training.config.bf16" and value["value"]:  # it comes to what the CPU has
            decided = ("value",) if isinstance(value["value"], str) else ()  # where it is not written
            value = {**value, **dict.fromkeys((*decided, "status", "effect", "reason"), VARIES)}
        return {shorter(name, named): stable(one, f"{where}.{name}", named, varying) for name, one in value.items()}
    if isinstance(value, list):
        return [stable(one, f"{where}.{number}", named, varying) for number, one in enumerate(value)]
    return shorter(value, named) if isinstance(value, str) else value


def shorter(text: str, named: Mapping[str, str]) -> str:
    for folder, word in named.items():
        text = text.replace(folder, word)
    for pattern, word in TEXTS:
        text = re.sub(pattern, word, text)
    return text


def flat(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not members:
        yield where, value
    for name, member in members:
        yield from flat(member, f"{where}.{name}" if where else str(name))


def differences(old: Any, new: Any) -> list[str]:
    """Return a line for every place where two JSON values differ."""
    before, after = ({place: repr(one) for place, one in flat(value)} for value in (old, new))
    pairs = [(place, before.get(place, "nothing"), after.get(place, "nothing")) for place in {**before, **after}]
    lines = [f"{place}: {was} -> {now}" for place, was, now in pairs if was != now]
    return lines or ([] if list(before) == list(after) else ["the same values, their keys in another order"])


def make_model(folder: Path, architecture: str) -> Path:
    """Write a seeded model of 0.1 M parameters, and the tokenizer that is kept, as a model of the hub lies on disk."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": 384,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    is_llama = architecture == "llama"
    model: Any = LlamaForCausalLM(LlamaConfig(**shape)) if is_llama else Qwen3ForCausalLM(Qwen3Config(**shape))
    model.save_pretrained(folder)
    for file in (GOLDEN / "tokenizer").iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def make_project(folder: Path, model: Path, quantization: str, config: Mapping[str, Any]) -> Path:
    """Write a manifest, its rows and cases; return the manifest."""
    write_rows(folder / "train.jsonl", ROWS[8:])
    write_rows(folder / "valid.jsonl", ROWS[:8])
    write_rows(folder / "tests" / "cases.jsonl", CASES)
    manifest = {
        "name": "sums",
        "schema_version": "2.0",
        "base_models": [{"name": str(model), "quantization": quantization}],
        "training": {
            "dataset": {"path": "train.jsonl", "validation_path": "valid.jsonl"},
            "config": {**CONFIG, **config},
            "decoding": {"temperature": 0.7, "top_p": 0.9, "stop_sequences": ["###"]},
        },
    }
    write_json(folder / "manifest.json", manifest)
    return folder / "manifest.json"


# What every machine answers alike -------------------------------------------------------------------------------------


def store_of(commands: Commands, *words: str | Path) -> dict[str, Any]:
    """Return what `pretokenize` prints, and what lies in the store: bytes by their hash, what tells of versions as it is."""
    told = commands.json("pretokenize", "--offline", *words)
    folder = Path(told["document"]["stores"][0]["path"])
    kept: dict[str, Any] = {}
    for name in files_of(folder):
        data = (folder / name).read_bytes()
        kept[name] = json.loads(data) if name in ("fingerprint.json", "stats.json") else sha256(data)
    kept["fingerprint.json"]["self"] = VARIES
    for part in ("bytes", "sha256"):
        kept["fingerprint.json"]["files"]["stats.json"][part] = VARIES  # names the tokenizer's version
    return {**told, "files": kept}


def answers(folder: Path) -> Path:
    """Write answers to cases of three experts: right, in a fence, wrong, broken; return the file."""
    rows = []
    wrong = {"expert-sql": "SELECT 123456", "expert-json": "[]", "expert-neo4j": "RETURN 123456"}
    for expert in wrong:
        lines = (ROOT / "experts" / expert / "tests" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines[::30]):
            case = {name: value for name, value in json.loads(line).items() if name not in ("prompt", "input")}
            case |= {name: f"experts/{expert}/tests/{case[name]}" for name in ("database", "script") if name in case}
            right = case["expected"] if isinstance(case["expected"], str) else json.dumps(case["expected"])
            answer = (right, f"Sure:\n```\n{right}\n```", wrong[expert], "%%")[number % 4]
            rows.append({**case, "answer": answer})
    return write_rows(folder / "answers.jsonl", rows)


def manifests_of_others(commands: Commands) -> dict[str, Any] | None:
    """Return by manifest the hash of what `validate` says of every key; None where there are no such manifests here."""
    paths = sorted(SHARED.glob("*.json"))
    kept: dict[str, Any] = {}
    for path in paths:
        told = commands.json("validate", path)
        (one,) = stable(told["document"]["manifests"], "validate", {str(SHARED): "<shared>"})
        effects = {row["key"]: sha256(json.dumps(row).encode())[:16] for row in one.pop("effects")}
        rest = {name: sha256(json.dumps(value).encode())[:16] for name, value in one.items()}
        kept[path.stem] = {"exit_code": told["exit_code"], **rest, "effects": effects}
    return kept or None


def light(commands: Commands, work: Path) -> Iterator[tuple[str, Any]]:
    """Yield what needs no model: (name, what is kept)."""
    yield "schema", commands.json("schema")
    made = commands.json("init", "expert-new", "--folder", "new")
    yield (
        "init",
        {**made, "files": {name: sha256((work / "new" / name).read_bytes()) for name in files_of(work / "new")}},
    )
    for folder in (*(Path("experts", name) for name in EXPERTS), ORDERS):
        yield f"validate-{folder.name}", commands.json("validate", folder / "manifest.json")
    bad = json.loads((work / "sums" / "manifest.json").read_text(encoding="utf-8"))
    bad["training"]["config"] |= {"num_epochs": 2, "learning_rte": 1, "rank": "four"}
    write_json(work / "bad.json", bad)
    yield "validate-bad", commands.json("validate", "bad.json", "--fix")
    yield "error-manifest", commands.json("train", "-m", "none.json")
    yield "error-option", commands.json("train", "-m", "sums/manifest.json", "--set", "training.config.rnk=3")
    yield "evaluate-answers", commands.json("evaluate", "--answers", answers(work))
    shutil.copytree(GOLDEN / "run", work / "kept-run")
    told = commands.json("report", "kept-run")
    page = (work / "kept-run" / "report.html").read_text(encoding="utf-8").replace(str(work), "<work>")
    yield "report", {**told, "page": sha256(page.encode())}
    yield "benchmark-run", commands.json("benchmark", "--run", "kept-run")


def heavy(commands: Commands, work: Path) -> Iterator[tuple[str, Any]]:
    """Yield what tokenizes and trains."""
    for expert in EXPERTS:
        rows = () if expert == "expert-json" else ("--dataset", f"experts/{expert}/datasets/train.jsonl")
        yield (
            f"pretokenize-{expert}",
            store_of(commands, "-m", f"experts/{expert}/manifest.json", "--base-model", "model", *rows),
        )
    yield "find-datasets", commands.json("find-datasets", "--experts", "experts")
    manifest, run = Path("sums/manifest.json"), work / "sums" / "run"
    yield "plan", commands.json("train", "-m", manifest, "--plan", "--price", "2.50/h", "--offline")
    told = commands.json("train", "-m", manifest, "--output", run, "--offline")
    parts = ("run.json", "status.json", "adapter/adapter_config.json", "adapter/base_model.json")
    kept = {name: json.loads((run / name).read_text(encoding="utf-8")) for name in parts}
    kept["adapter/adapter_config.json"]["target_modules"].sort()  # a set: PEFT writes it in any order
    logged = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    yield "train", {**told, **kept, "metrics": [list(json.loads(line)) for line in logged], "files": files_of(run)}
    yield "pretokenize-hit", commands.json("pretokenize", "-m", manifest, "--explain", "--offline")
    told = commands.json("evaluate", "--adapter", run, "--baseline", "--max-new-tokens", "4", "--offline")
    yield "evaluate", told
    yield (
        "chat",
        commands.json("chat", "--adapter", run, "--prompt", "Add 1 and 2.", "--max-new-tokens", "2", "--offline"),
    )
    yield "export", commands.json("export", "--adapter", run, "--output", "exported", "--offline")
    yield "doctor", doctor(commands)


def doctor(commands: Commands) -> dict[str, Any]:
    """Return the keys of what `doctor` prints: all else tells of the machine."""
    document = commands.json("doctor")["document"]
    return {"keys": list(document), "of a line": sorted({name for line in document["lines"] for name in line})}


def record() -> dict[str, Any]:
    """Return by name what every command answers on fixed inputs, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        commands = Commands(work)
        for expert in EXPERTS:
            shutil.copytree(ROOT / "experts" / expert, work / "experts" / expert)
        shutil.copytree(ROOT / ORDERS, work / ORDERS)
        make_project(work / "sums", make_model(work / "model", "llama"), "none", {})
        named = {str(work): "<work>", str(ROOT): "<repository>", sys.executable: "<python>"}
        kept = {}
        for steps in (light, heavy):
            for step, value in steps(commands, work):
                kept[step] = stable(value, step, named, () if step in FIXED else VARYING)
        others = manifests_of_others(commands)
        return kept | ({"manifests-of-others": others} if others else {})


def keep(recorded: Mapping[str, Any]) -> None:
    """Write what was recorded to tests/golden/commands; what is not recorded any more goes."""
    for path in COMMANDS.glob("*.json"):
        if path.stem not in recorded and path.stem != "manifests-of-others":
            path.unlink()
    for name, value in recorded.items():
        write_json(COMMANDS / f"{name}.json", value)


def check(recorded: Mapping[str, Any]) -> list[str]:
    """Return a line for everything that differs from what is kept."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in COMMANDS.glob("*.json")}
    if "manifests-of-others" not in recorded:
        kept.pop("manifests-of-others", None)
    return [
        f"{name}: {line}" for name in {**kept, **recorded} for line in differences(kept.get(name), recorded.get(name))
    ]


# What this machine alone repeats --------------------------------------------------------------------------------------


def model_in(out: Path, architecture: str) -> Path:
    """Return the model of a recording; made where it is not there yet."""
    folder = out / "models" / architecture
    return folder if folder.is_dir() else make_model(folder, architecture)


def record_runs(out: Path) -> None:
    """Train RUNS below `out`, and leave runs.json there: losses, hashes, settings; then what is to be opened later."""
    commands = Commands(out)
    recorded = {}
    for name, (architecture, quantization, config) in RUNS.items():
        shutil.rmtree(out / "runs" / name, ignore_errors=True)
        manifest = make_project(out / "runs" / name, model_in(out, architecture), quantization, config)
        ran = commands.run("train", "-m", manifest, "--output", manifest.parent / "run", "--offline", "--quiet")
        if ran.code:
            sys.exit(f"{name}: exit code {ran.code}\n{ran.err}")
        recorded[name] = stable(told_by(manifest.parent), name, {str(out): "<out>"}, ())
        write_json(out / "runs.json", recorded)
        print(f"{name}: {recorded[name]['losses']}", flush=True)


def told_by(project: Path) -> dict[str, Any]:
    """Return what a run came to, of what must be the same on the same machine."""
    run = json.loads((project / "run" / "run.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (project / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = (
        "step",
        "loss",
        "eval_loss",
        "grad_norm",
        "learning_rate",
        "tokens_real",
        "tokens_trained",
        "tokens_padded",
    )
    store = Path(run["store"]["path"])
    weights = [file for file in files_of(project / "run") if file.endswith(".safetensors")]
    return {
        "losses": [line.get("loss") for line in lines],
        "metrics": [{name: line[name] for name in names if name in line} for line in lines],
        "safetensors": {file: sha256((project / "run" / file).read_bytes()) for file in weights},
        "store": {file: sha256((store / file).read_bytes()) for file in files_of(store)},
        "kernels": run["kernels"],
        "config": run["config"],
        "identity": run["identity"],
    }


def keep_runs(out: Path) -> None:
    """Leave in `out`/keep a run that ended, one that was killed after a checkpoint, and what opening them answers now."""
    commands = Commands(out)
    shutil.rmtree(out / "keep", ignore_errors=True)
    config = {"max_steps": 12, "save_steps": 2, "bf16": True, "dropout": 0.1}
    manifest = make_project(out / "keep", model_in(out, "llama"), "int4", config)
    words = ("train", "-m", manifest, "--offline", "--quiet", "--output")
    ran = commands.run(*words, out / "keep" / "ended")
    if ran.code:
        sys.exit(f"keep: exit code {ran.code}\n{ran.err}")
    child = commands.start(*words, out / "keep" / "killed")
    while not (out / "keep" / "killed" / "checkpoints" / "checkpoint-4").is_dir():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    write_json(out / "keep" / "opened.json", open_runs(out, commands))


def open_runs(out: Path, commands: Commands) -> dict[str, Any]:
    """Return what commands answer of copies of the runs in `out`/keep: both gone on with, and the ended one evaluated."""
    copies, manifest = out / "copies", out / "keep" / "manifest.json"
    shutil.rmtree(copies, ignore_errors=True)
    for run in ("ended", "killed"):
        shutil.copytree(out / "keep" / run, copies / run)
    ended, killed = copies / "ended", copies / "killed"
    opened = {
        "report": commands.json("report", ended),
        "page": sha256((ended / "report.html").read_bytes()),
        "evaluate": commands.json("evaluate", "--adapter", ended, "--max-new-tokens", "8", "--offline"),
        "store": commands.json("pretokenize", "-m", manifest, "--verify", "--offline"),
        "ended": commands.json("train", "-m", manifest, "--output", ended, "--resume", "auto", "--offline"),
        "killed": commands.json("train", "-m", manifest, "--output", killed, "--resume", "auto", "--offline"),
    }
    return dict(stable(opened, "opened", {str(out): "<out>"}, MEASURED))


def compare(a: Path, b: Path) -> list[str]:
    """Return a line for everything in which two recordings of --runs differ, but for NOT_COMPARED."""
    old, new = (json.loads((folder / "runs.json").read_text(encoding="utf-8")) for folder in (a, b))
    return [line for line in differences(old, new) if not any(f".{part}: " in line for part in NOT_COMPARED)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="compare with tests/golden/commands and write nothing")
    group.add_argument(
        "--runs", type=Path, metavar="OUT", help="record six seeded trainings; models that lie there are used"
    )
    group.add_argument(
        "--keep-runs", type=Path, metavar="OUT", help="beside a recording, leave a complete and a killed run"
    )
    group.add_argument(
        "--compare", type=Path, nargs=2, metavar=("A", "B"), help="say what differs between two recordings"
    )
    group.add_argument(
        "--open-runs", type=Path, metavar="OUT", help="open those two again, and say what is other than it was"
    )
    asked = parser.parse_args()
    if asked.runs:
        return record_runs(asked.runs.resolve())
    if asked.keep_runs:
        return keep_runs(asked.keep_runs.resolve())
    if asked.compare:
        found = compare(*asked.compare)
    elif asked.open_runs:
        out = asked.open_runs.resolve()
        before = json.loads((out / "keep" / "opened.json").read_text(encoding="utf-8"))
        found = differences(before, open_runs(out, Commands(out)))
    elif asked.check:
        found = check(record())
    else:
        return keep(record())
    print("\n".join(found) or "nothing differs")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
