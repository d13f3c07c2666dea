"""Record what the commands print and write, to compare after a change that must change no result.

    python -m scripts.make_golden                     # make tests/golden/commands anew
    python -m scripts.make_golden --check             # compare with it and write nothing; exit code 1: something differs
    python -m scripts.make_golden --runs OUT          # record six seeded trainings in OUT/runs.json, the same machine's alike

Knows the command line, plain data files and the tiny models of the tests, no module of the package: those may be moved
between two recordings.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.command_line import Done, run_command
from tests.schemas import valid

if TYPE_CHECKING:
    from tests.tiny import Architecture

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
COMMANDS = GOLDEN / "commands"
SHARED = Path(os.environ.get("EXPERT_CLI_MANIFESTS", ROOT.parent / "shared" / "manifests")).resolve()
"""Manifests of other people, where they are on this machine. Their text is not ours: only hashes of the answers are kept."""
EXPERTS = ("expert-json", "expert-neo4j", "expert-sql")
VARIES = "<varies>"
VARYING = (
    # time and speed
    *("*seconds", "*.seconds_*", "*tokens_per_s", "*mb_per_s", "*.mfu", "*.step_time_shares.*", "*.cost"),
    *("*.started", "*.updated", "*.pid", "*.birth", "*.host"),
    # the machine and its memory
    *("*.peak_memory_mb", "*.vram_mb.process", "*.vram_mb.heap", "*.vram_mb.total", "*.machine.*"),
    *("*.versions.*", "*.encoder", "*.identity.code", "*.peft_version"),
    # the last bits of floating-point sums, which are those of the processor, and whatever is made from them
    *("train.document.loss.*", "*.eval_loss", "*.adapter_sha256", "*.base_sha256", "*.model.sha256"),
    *("*.forgetting.loss_*", "*.forgetting.difference", "*.forgetting.ci95*", "*.forgetting.sha256"),
    *("*.identity.base model", "*base_model.json.sha256", "*.samples.*.before", "*.samples.*.after", "*.right_*"),
)
"""Which values are not compared, by where they stand; only that there is one."""
TEXTS = (
    (r"\b\d+ CPU cores", "<n> CPU cores"),
    (r"[\d,]+ MB are free", "<n> MB are free"),
    (r"keeps these weights unpacked, in \w+;", "keeps these weights unpacked, in <dtype>;"),
)
"""Parts of sentences that tell of the machine."""
OTHERS = "manifests-of-others"
FIXED = ("benchmark", "report", "evaluate")
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
RUNS: dict[str, tuple[Architecture, str, dict[str, Any]]] = {
    "llama-nf4-packed": ("llama", "int4", {"bf16": True, "warmup_steps": 1, "weight_decay": 0.01}),
    "llama-bf16-padded": ("llama", "none", {"bf16": True, "packing": False, "dropout": 0.1}),
    "llama-fp32-dora": ("llama", "none", {"adapter_type": "dora", "neftune_noise_alpha": 5.0}),
    "qwen3-nf4-uncopied": ("qwen3", "int4", {"bf16": True, "dequantized_copy": "never", "adapter_type": "dora"}),
    "qwen3-fp32-accumulated": ("qwen3", "none", {"batch_size": 2, "gradient_accumulation_steps": 3, "eval_steps": 2}),
    "qwen3-bf16-resumed": ("qwen3", "none", {"bf16": True, "max_steps": 12, "save_steps": 2, "dropout": 0.1}),
}
"""Name -> architecture, quantization, what is added to CONFIG. The resumed one is killed after its second checkpoint."""


class Commands:
    """Runs the command line in this process. folder: where it runs, and where its caches and home lie."""

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "HF_HUB_OFFLINE": "1"}
        self.folder, self.environment = folder, {**os.environ, **own}

    def run(self, *words: str | Path) -> Done:
        """Run a command to its end."""
        return run_command(words, self.folder, self.environment)

    def json(self, *words: str | Path) -> dict[str, Any]:
        """Return the exit code and the JSON document of a command, valid for its schema. Ends this script without one."""
        ran = self.run(*words, "--json")
        try:
            document = json.loads(ran.out)
            valid(document, "train-plan" if "--plan" in words else str(words[0]))
        except ValueError as error:
            sys.exit(
                f"{error}\nexpert-cli {' '.join(map(str, words))} --json: exit code {ran.code}\n{ran.out}{ran.err}"
            )
        return {"exit_code": ran.code, "document": document}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_of(folder: Path) -> list[str]:
    """Return the files below a folder, hidden ones left out."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    path.write_text(json_text(value), encoding="utf-8", newline="\n")


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


def make_model(folder: Path, architecture: Architecture) -> Path:
    """Write a seeded model of 0.1 M parameters, and the tokenizer that is kept, as a model of the hub lies on disk."""
    from tests.tiny import tiny_model

    model: Any = tiny_model(architecture)
    model.save_pretrained(folder)
    shutil.copytree(GOLDEN / "tokenizer", folder, dirs_exist_ok=True)
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


def answered(commands: Commands, work: Path) -> Iterator[tuple[str, Any]]:
    """Yield the answers: (name, what is kept)."""
    yield "validate", commands.json("validate", "experts/expert-sql/manifest.json")
    yield "evaluate", commands.json("evaluate", "--answers", answers(work))
    shutil.copytree(GOLDEN / "run", work / "kept-run")
    told = commands.json("report", "kept-run")
    page = (work / "kept-run" / "report.html").read_text(encoding="utf-8").replace(str(work), "<work>")
    yield "report", {**told, "page": sha256(page.encode())}
    yield "benchmark", commands.json("benchmark", "--run", "kept-run")
    rows = ("--dataset", "experts/expert-sql/datasets/train.jsonl")
    yield "pretokenize", store_of(commands, "-m", "experts/expert-sql/manifest.json", "--base-model", "model", *rows)
    manifest, run = Path("sums/manifest.json"), work / "sums" / "run"
    yield "plan", commands.json("train", "-m", manifest, "--plan", "--price", "2.50/h", "--offline")
    told = commands.json("train", "-m", manifest, "--output", run, "--offline")
    parts = ("run.json", "status.json", "adapter/adapter_config.json", "adapter/base_model.json")
    kept = {name: read_json(run / name) for name in parts}
    kept["adapter/adapter_config.json"]["target_modules"].sort()  # a set: PEFT writes it in any order
    logged = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    yield "train", {**told, **kept, "metrics": [list(json.loads(line)) for line in logged], "files": files_of(run)}


def record() -> dict[str, Any]:
    """Return by name what every command answers on fixed inputs, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        commands = Commands(work)
        for expert in EXPERTS:
            shutil.copytree(ROOT / "experts" / expert, work / "experts" / expert)
        make_project(work / "sums", make_model(work / "model", "llama"), "none", {})
        named = {str(work): "<work>", str(ROOT): "<repository>", sys.executable: "<python>"}
        kept = {}
        for step, value in answered(commands, work):
            kept[step] = stable(value, step, named, () if step in FIXED else VARYING)
        others = manifests_of_others(commands)
        return kept | ({OTHERS: others} if others else {})


def keep(recorded: Mapping[str, Any]) -> None:
    """Write what was recorded to tests/golden/commands; what is not recorded any more goes."""
    for path in COMMANDS.glob("*.json"):
        if path.stem not in recorded and path.stem != OTHERS:
            path.unlink()
    for name, value in recorded.items():
        write_json(COMMANDS / f"{name}.json", value)


def check(recorded: Mapping[str, Any]) -> list[str]:
    """Return the lines that differ from what is kept, as `diff` shows them."""
    kept = {path.stem: path.read_text(encoding="utf-8") for path in sorted(COMMANDS.glob("*.json"))}
    if OTHERS not in recorded:
        kept.pop(OTHERS, None)
    found: list[str] = []
    for name in {**kept, **recorded}:
        now = json_text(recorded[name]) if name in recorded else ""
        found += difflib.unified_diff(kept.get(name, "").splitlines(), now.splitlines(), name, name, lineterm="", n=2)
    return found


# What this machine alone repeats --------------------------------------------------------------------------------------


def record_runs(out: Path) -> None:
    """Train RUNS below `out`, and leave runs.json there: losses, hashes, settings. Models that lie there are used."""
    commands = Commands(out)
    recorded = {}
    for name, (architecture, quantization, config) in RUNS.items():
        project, model = out / "runs" / name, out / "models" / architecture
        shutil.rmtree(project, ignore_errors=True)
        if not model.is_dir():
            make_model(model, architecture)
        manifest = make_project(project, model, quantization, config)
        words = ("train", "-m", manifest, "--output", project / "run", "--offline", "--quiet", "--resume", "auto")
        if name.endswith("resumed"):
            child = subprocess.Popen([sys.executable, "-m", "expert_cli", *map(str, words)], env=commands.environment)
            while not (project / "run" / "checkpoints" / "checkpoint-4").is_dir():
                time.sleep(0.01)
            child.kill()
            child.wait()
        ran = commands.run(*words)
        if ran.code:
            sys.exit(f"{name}: exit code {ran.code}\n{ran.err}")
        recorded[name] = stable(told_by(project), name, {str(out): "<out>"}, ())
        write_json(out / "runs.json", recorded)
        print(f"{name}: {recorded[name]['losses']}", flush=True)


def told_by(project: Path) -> dict[str, Any]:
    """Return what a run came to, of what must be the same on the same machine."""
    run, store = project / "run", Path(read_json(project / "run" / "run.json")["store"]["path"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {"step", "loss", "eval_loss", "grad_norm", "learning_rate"}
    names |= {"tokens_real", "tokens_trained", "tokens_padded"}
    weights = [file for file in files_of(run) if file.endswith("adapter_model.safetensors")]
    return {
        "losses": [line.get("loss") for line in lines],
        "metrics": [{name: value for name, value in line.items() if name in names} for line in lines],
        "safetensors": {file: sha256((run / file).read_bytes()) for file in weights},
        "store": {file: sha256((store / file).read_bytes()) for file in files_of(store) if file.endswith(".arrow")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="compare with tests/golden/commands and write nothing")
    group.add_argument("--runs", type=Path, metavar="OUT", help="record six seeded trainings")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it
    if asked.runs:
        record_runs(asked.runs.resolve())
    elif asked.check:
        found = check(record())
        print("\n".join(found) or "nothing differs")
        sys.exit(bool(found))
    else:
        keep(record())


if __name__ == "__main__":
    main()
