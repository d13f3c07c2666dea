"""An unusual input: a small expert is prepared in this process, and what would be trained and what was said is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import ExpertError
from expert_cli.pipeline.pretokenize import ShownDocument, shown_documents, store_for
from expert_cli.pipeline.training_data import resolve_inputs
from tests import manifests
from tests.machines import CPU
from tests.train.projects import tiny_llama
from tests.words import Words

Content = bytes | str | Callable[[Path], Any]
"""What a file holds, or what makes it."""


@dataclass(frozen=True)
class Outcome:
    """documents: of each, what is not trained and what is, end tokens of the chat template left out. said: every line."""

    documents: list[tuple[str, str]] = field(default_factory=list)
    said: str = ""
    refused: str = ""

    @property
    def answers(self) -> list[str]:
        """What is trained of each document."""
        return [answer for _, answer in self.documents]


def lines(*rows: Any) -> str:
    """Return rows as JSON Lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def row(n: int, **more: Any) -> dict[str, Any]:
    """Return the row whose task is `ask N` and whose answer is `say N`."""
    return {"instruction": f"ask {n}", "output": f"say {n}", **more}


def says(*numbers: int) -> list[str]:
    """Return the answers of the rows with these numbers."""
    return [f"say {n}" for n in numbers]


def prepare(folder: Path, files: Mapping[str, Content], dataset: Any = None, **config: Any) -> Outcome:
    """Write an expert with these files beside its manifest, make its token store, and return what is in it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    manifest = manifests.small(**{"max_seq_length": 256, **config})
    manifest["base_models"][0]["name"] = str(tiny_llama())
    manifest["training"]["dataset"] = {"path": dataset} if isinstance(dataset, str) else dataset
    words = Words()
    try:
        plan = make_plan(manifests.write(folder, manifest), CPU, Overrides(offline=True))
        words.lines += [*map(str, plan.warnings), *(f"{row.key}: {row.status}" for row in plan.effects)]
        inputs = resolve_inputs(plan.run, words)
        store = store_for(plan.run, inputs, words)
        shown = shown_documents(store, inputs, 10_000)
        documents = [parts(document) for document in shown]
    except ExpertError as error:
        return Outcome([], "\n".join(words.lines), f"{error.message}\n{error.hint}")
    return Outcome(documents, "\n".join(words.lines))


def parts(document: ShownDocument) -> tuple[str, str]:
    """Return what is not trained of a document, and what is."""
    tokens = list(zip(document.tokens, document.trained, strict=True))
    one, other = ("".join(text for text, trained in tokens if trained is kind) for kind in (False, True))
    return one, re.sub(r"<\|im_end\|>\n?|<\|endoftext\|>", "|", other).removesuffix("|")
