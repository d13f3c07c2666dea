"""How large a stock library's micro-batches may be on a card, modeled before anything is run.

The stock ways make full logits: of every place, padding too, one entry for each token of the vocabulary. So what fits is
decided by the place count of their largest micro-batch:

    padded       rows x the longest of them      flattening, trl     all of its tokens, one row

One rule for all of them: as many packs at once as fit, of those that divide a step's; the rest is accumulated. Where one pack
is too much, packs of half its tokens. Every way trains as many tokens in a step, and each in the largest pieces that it can
take; what it is compared with takes the same pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from expert_cli.benchmark.experiment.baseline import stock_config
from expert_cli.benchmark.experiment.baseline_rows import documents_of_steps
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.estimate.memory import CONTEXT_BYTES, StepSettings, components
from expert_cli.estimate.model_shape import Shape, meta_model, shape_of
from expert_cli.estimate.run_estimate import MEMORY_ERROR_PCT
from expert_cli.hardware import machine
from expert_cli.model.kernels.select import Kernel, KernelPlan
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.utils.reporter import NullReporter

LOGIT_BYTES = 12
"""Of one entry of full logits when transformers' loss takes most: its log-softmax in fp32, kept since the forward pass, and in
the backward pass the gradients of that and of the logits, in fp32 too."""
SPARE = 1 + MEMORY_ERROR_PCT["gpu"] / 100
"""What is free must be so many times what is needed."""
GB = 2**30
Lengths = Sequence[Sequence[int]]
"""The tokens of every document of every pack of a step."""


@dataclass(frozen=True)
class Size:
    """Packs of a micro-batch, micro-batches of a step, tokens of a pack; the largest micro-batch, and the bytes it takes."""

    packs: int
    micro_steps: int
    tokens: int
    rows: int
    longest: int
    needed: int

    @property
    def places(self) -> int:
        """Places of the largest micro-batch, padding included."""
        return self.rows * self.longest

    @property
    def config(self) -> dict[str, int]:
        """The keys of `training.config` that make it so."""
        return {
            "batch_size": self.packs,
            "gradient_accumulation_steps": self.micro_steps,
            "max_seq_length": self.tokens,
        }

    def fits(self, free: int) -> bool:
        """Whether it fits into so many bytes, with a margin."""
        return SPARE * self.needed <= free


def largest(way: str, steps: Iterable[Lengths], packs: int) -> tuple[int, int]:
    """Return the rows of the micro-batch of `packs` packs that has the most places, and the tokens of its longest row."""
    batches = [[*chain(*step[n : n + packs])] for step in steps for n in range(0, len(step), packs)]
    shapes = [(len(batch), max(batch)) if way == "padded" else (1, sum(batch)) for batch in batches]
    return max(shapes, key=lambda shape: shape[0] * shape[1])


def needed_bytes(way: str, shape: Shape, run: RunConfig, rows: int, longest: int) -> int:
    """Return what a step takes at most, with a micro-batch of so many rows: the plan's parts, full logits, SDPA's masks."""
    stock = stock_config(run)
    if way == "trl":
        stock = replace(stock, compute=replace(stock.compute, checkpointing="all"))
    plan = KernelPlan("sdpa", "padded", False, True, False, False, {"fused": Kernel("off", "")})
    repeated = replace(shape, key_heads=shape.heads)  # transformers repeats them wherever there is a mask
    parts = components(repeated, StepSettings(stock, plan, rows * longest, longest, 0, 1), CONTEXT_BYTES)
    masks = (
        1 if stock.compute.checkpointing == "all" else len(shape.layers)
    )  # SDPA keeps one in the compute dtype a layer
    logits = LOGIT_BYTES * shape.vocabulary * rows * longest
    in_layers = sum(parts.values()) - parts["head_chunk"]
    return in_layers + logits + masks * DTYPES[run.compute.dtype].itemsize * rows * longest**2


def sizes_of(way: str, shape: Shape, run: RunConfig, steps: Sequence[Lengths]) -> list[Size]:
    """Return every size that trains `run`'s packs in each step, the largest first."""
    whole = run.optim.batch_size * run.optim.gradient_accumulation_steps
    found = []
    for packs in range(run.optim.batch_size, 0, -1):
        if whole % packs == 0:
            rows, longest = largest(way, steps, packs)
            needed = needed_bytes(way, shape, run, rows, longest)
            found.append(Size(packs, whole // packs, run.data.max_seq_length, rows, longest, needed))
    return found


def choose(sizes: Sequence[Size], free: int) -> Size:
    """Return the largest size that fits; the smallest where none does."""
    return next((size for size in sizes if size.fits(free)), sizes[-1])


def sizes_for(way: str, manifest: Path, steps: int) -> list[Size]:
    """Return the sizes for a manifest's model and the rows of its first steps; builds the token store."""
    run = make_plan(manifest, machine.inspect(), Overrides(max_steps=steps, offline=True)).run
    inputs = resolve_inputs(run, NullReporter())
    documents = store_for(run, inputs, NullReporter()).split("train")
    if documents is None:
        raise ValueError(f"{manifest} has no training rows")
    model = meta_model(inputs.source.folder, run.adapter, dtype=DTYPES[run.compute.dtype], attention="sdpa")
    return [
        size
        for each in (run, in_halves(run))
        for size in sizes_of(way, shape_of(model), each, documents_of(each, documents))
    ]


def in_halves(run: RunConfig) -> RunConfig:
    """Return the run with packs of half the tokens, one at a time, as many tokens a step."""
    whole = 2 * run.optim.batch_size * run.optim.gradient_accumulation_steps
    optim = replace(run.optim, batch_size=1, gradient_accumulation_steps=whole)
    return replace(run, optim=optim, data=replace(run.data, max_seq_length=run.data.max_seq_length // 2))


def documents_of(run: RunConfig, documents: Any) -> list[Lengths]:
    """Return what every step trains, pack by pack. documents: of the token store."""
    data = PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    whole = run.optim.batch_size * run.optim.gradient_accumulation_steps
    one_by_one = replace(run, optim=replace(run.optim, batch_size=1, gradient_accumulation_steps=whole))
    laid = documents_of_steps(one_by_one, data)
    return [[[len(laid.rows[n]["input_ids"]) for n in pack] for pack in step] for step in laid.steps]


def in_words(sizes: Sequence[Size], chosen: Size, vocabulary: int, free: int) -> str:
    """Return what was chosen and why. sizes: the largest first."""
    logits = LOGIT_BYTES * vocabulary * chosen.places
    said = (
        f"{chosen.packs} x {chosen.micro_steps} packs of {chosen.tokens:,} tokens: {chosen.rows} x {chosen.longest:,} places "
        f"in its largest micro-batch, {chosen.needed / GB:.1f} GB by the model, {logits / GB:.1f} GB of them full logits; "
        f"{free / GB:.1f} GB are free"
    )
    if not chosen.fits(free):
        return f"{said}: nothing fits with a margin of {SPARE - 1:.0%}, this is the smallest"
    if before := sizes[: sizes.index(chosen)]:
        larger = before[-1]
        said += (
            f", {larger.packs} x {larger.micro_steps} packs of {larger.tokens:,} would take {larger.needed / GB:.1f} GB"
        )
    return said
