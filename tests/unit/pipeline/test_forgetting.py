"""What a model forgot is how its loss on neutral texts differs from that of the same model with its adapter disabled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import PeftModel

from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.tokenizer import TokenizerInfo, load_tokenizer
from expert_cli.pipeline.forgetting import CHARACTERS, TOKENS, measure, missed, neutral_texts
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.statistics import t_quantile
from tests import tiny
from tests.train.projects import Told

ADAPTERS = ("lora", "rslora", "dora")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TokenizerInfo:
    return load_tokenizer(tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny"))


def forgetting(model: PeftModel, tokenizer: TokenizerInfo, texts: Sequence[str], card: Path) -> SimpleNamespace:
    """What is found where every loss is finite; the card tells it."""
    card.touch()
    found = measure(model, tokenizer, texts, card, NullReporter())
    assert found is not None
    assert f"on {len(texts)} neutral texts" in card.read_text(encoding="utf-8")
    return SimpleNamespace(**found)


def adapted(kind: str, **shape: Any) -> PeftModel:
    """A tiny model with a fresh adapter."""
    config: Any = {"type": kind, "rank": 4, "alpha": 8.0, "dropout": 0.5, "target_modules": ("q_proj", "down_proj")}
    torch.manual_seed(0)
    return add_adapter(tiny.tiny_model(**shape), AdapterConfig(**config))


def moved(model: PeftModel, by: float = 3.0) -> PeftModel:
    """The model, its adapter moved at random from where it began."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=by)
    return model


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_fresh_adapter_forgot_exactly_nothing(tmp_path: Path, tokenizer: TokenizerInfo, kind: str) -> None:
    model = adapted(kind)
    model.train()  # with dropout
    found = forgetting(model, tokenizer, neutral_texts(20), tmp_path / "card")
    if kind == "dora":  # its magnitudes are divided by the norms that they are
        assert found.difference == pytest.approx(0, abs=1e-6)
    else:
        assert (found.difference, found.ci95) == (0, [0, 0])
    assert found.loss_before == pytest.approx(math.log(384), abs=0.2)
    assert model.training


@pytest.mark.parametrize("kind", ADAPTERS)
def test_before_is_the_base_model_and_after_the_adapted_one(
    tmp_path: Path, tokenizer: TokenizerInfo, kind: str
) -> None:
    """Each text alone, by transformers' own loss."""
    model, texts = moved(adapted(kind)), neutral_texts(6)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = forgetting(model, tokenizer, texts, tmp_path / "card")
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained
    model.eval()
    base = tiny.tiny_model()
    losses: list[list[float]] = []
    for one in (base, model):
        rows = [torch.tensor([tokenizer.backend.encode(text).ids[:TOKENS]]) for text in texts]
        with torch.no_grad():
            losses.append([float(one(input_ids=row, labels=row).loss) for row in rows])
    differences = torch.tensor(losses[1]) - torch.tensor(losses[0])
    half = t_quantile(5) * float(differences.std()) / math.sqrt(6)
    assert found.loss_before == pytest.approx(sum(losses[0]) / 6, abs=1e-5)
    assert found.loss_after == pytest.approx(sum(losses[1]) / 6, abs=1e-5)
    assert found.difference == pytest.approx(float(differences.mean()), abs=1e-5)
    assert float(differences.abs().max()) > 0.01
    assert found.ci95 == pytest.approx((found.difference - half, found.difference + half), abs=1e-5)
    assert found.texts == 6


def test_texts_are_prose_spread_over_all_there_are() -> None:
    texts = neutral_texts(200)
    assert len(texts) == len(set(texts)) == 200
    assert {len(text) for text in texts} == {CHARACTERS}
    assert all(text[0].isupper() and "\n" not in text and "  " not in text for text in texts)
    every = [*dict.fromkeys(neutral_texts(10**6))]
    assert texts == [every[n * len(every) // 200] for n in range(200)]


TOLD: dict[str, Any] = {"texts": 9, "loss_before": 3.0, "loss_after": 3.25, "difference": 0.25, "ci95": [-0.5, 1.0]}


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (None, ""),
        (0.25, ""),
        (0.2499, "the loss on neutral texts rose by 0.2500 nats a token, more than --max-forget 0.2499"),
    ],
)
def test_the_mean_decides_whatever_the_interval_is(allowed: float | None, words: str) -> None:
    assert missed({"forgetting": TOLD}, allowed) == words


@pytest.mark.parametrize("document", [{}, {"forgetting": {**TOLD, "difference": math.nan}}], ids=["none", "nan"])
def test_what_is_not_known_holds_no_gate(document: dict[str, Any]) -> None:
    assert missed(document, 1e9) == "what was forgotten is not known, and --max-forget allows 1e+09 nats a token"
    assert missed(document, None) == ""


def test_a_loss_that_is_not_finite_is_told_and_kept_nowhere(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny.tiny_model_folder(tmp_path / "tiny"))
    base: Any = tiny.tiny_model()
    with torch.no_grad():
        base.model.embed_tokens.weight[tokenizer.backend.token_to_id("e")] = math.nan
    model = add_adapter(base, AdapterConfig("lora", 4, 8.0, 0.0, ("q_proj",)))
    report = Told()
    assert measure(model, tokenizer, neutral_texts(9), tmp_path / "README.md", report) is None
    assert report.warnings == ["forgetting is not known: the loss on neutral texts is not finite"]
