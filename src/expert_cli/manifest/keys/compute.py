"""How a step is computed: precision, attention, kernels, recomputation, compiler, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from expert_cli.manifest.key import Dtype, NotNegative, Strict, adjusted, always, key

DeviceName = Literal["cpu", "cuda"]
DeviceChoice = Literal["auto", "cpu", "cuda", "rocm"]
Attention = Literal["fused", "eager", "rows"]
Checkpointing = Literal["off", "all"]
Compiler = Literal["inductor", "aot_eager", "eager"]
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
ATTENTION: dict[Attention, str] = {
    "fused": "fused kernels, in which a document attends to itself alone (the kernel plan names them)",
    "eager": "attention with a full mask of tokens x tokens",
    "rows": "one document in each row, padded to the longest of its batch",
}
CHECKPOINTING: dict[Checkpointing, str] = {"off": "activations are kept", "all": "every layer is recomputed"}
WITHOUT_GRAPHS: dict[Mode, Mode] = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
"""Compiler modes with CUDA graphs, and their equivalents without: gradient accumulation overwrites what a graph returned."""
_FUSED = {
    "auto": "fused kernels where possible (the kernel plan lists them)",
    "off": "the layers of transformers and PEFT, and full logits",
}
_COPIES = {
    "auto": "4-bit weights are dequantized once if memory allows",
    "always": "4-bit weights are dequantized once",
    "never": "4-bit weights are dequantized in every step",
}
_ON_OOM = {
    "fit": "if a step does not fit, the micro-batch is halved, then activations are recomputed, then the dequantized copy of "
    "4-bit weights is dropped; micro-steps are merged if a measurement shows that this is faster",
    "error": "a step that does not fit ends the run",
}


class ComputeKeys(Strict):
    """The keys for how a step is computed."""

    device: DeviceChoice | None = key("auto", "trains on {}", why="a GPU is faster")
    """Training device: a GPU (cuda, also for AMD's; rocm is its old name), or the CPU. auto: a GPU if there is one."""
    fp16: bool | None = key(None, "trains in {}")
    """Train in half precision (GPU)."""
    bf16: bool | None = key(None, "trains in {}", why="fast on this machine; the range of fp32 at half its memory")
    """Train in bfloat16; a machine without it uses fp16 (GPU) or fp32 (CPU), since emulation is 20 times slower. If neither
    `bf16` nor `fp16` is written, the machine decides; if both are false: fp32."""
    use_tf32: bool | None = key(False, "products may use TF32", off="no TF32", why="in bf16 few products could use it")
    """TF32 in fp32 matrix products, where the GPU has it."""
    use_sdpa: bool | None = key(True, ATTENTION, why="on every device; it stores no scores of tokens x tokens")
    """PyTorch's fused attention."""
    flash_attention_2: bool | None = key(False, ATTENTION, why="part of `use_sdpa`")
    """FlashAttention, which is part of PyTorch: on NVIDIA's GPUs from Ampere on; part of `use_sdpa`."""
    memory_efficient_attention: bool | None = key(False, ATTENTION, why="part of `use_sdpa`")
    """Attention that keeps no full score matrix; part of `use_sdpa`."""
    pad_documents: bool | None = key(None, ATTENTION["rows"], off="documents share rows if packing is on")
    """A row for each document of a pack, padded to the longest in its batch; for comparison."""
    gradient_checkpointing: bool | Literal["selective"] | None = key(
        False, CHECKPOINTING, why="it makes steps a third slower"
    )
    """Recompute activations in the backward pass; "selective" is read as true. With dropout in the adapter, a step in a CUDA
    graph is recorded without recomputation if it fits."""
    gradient_checkpointing_kwargs: dict[str, bool] | None = key(None, "use_reentrant: true", off="use_reentrant: false")
    """Settings of it; `use_reentrant` is the only one."""
    activation_checkpointing: Literal["attention_only"] | None = key(None, CHECKPOINTING)
    """The same as `gradient_checkpointing: true`."""
    torch_compile: bool | None = key(
        False,
        "every decoder layer is compiled",
        off="nothing is compiled",
        why="compiling takes minutes, more than a short training saves",
    )
    """Compile every decoder layer."""
    torch_compile_backend: Compiler | None = key("inductor", "compiler back end", why="PyTorch's own")
    """Compiler back end."""
    torch_compile_mode: Mode | None = key("default", "what the compiler optimizes for", why="others compile longer")
    """What the compiler optimizes for."""
    use_cuda_graphs: bool | None = key(
        True,
        "the step is recorded in a CUDA graph and replayed",
        off="every step is launched kernel by kernel",
        why="the host launches a step's kernels more slowly than most GPUs run them",
    )
    """On a GPU, record the step as a CUDA graph and replay it, so that the GPU does not wait for the host. Batches need one
    shape, which `packing` gives them. A graph whose results differ from those of the normal step is not used, and the kernel
    plan says so. false: kernels are launched one by one."""
    cuda_graph_warmup_steps: NotNegative | None = always(
        adjusted("none", "the graph is checked on the first micro-batch before it is used")
    )
    """Steps before the recording; none are needed: the first micro-batch is computed with the graph and without it, and the
    two are compared."""
    fused_kernels: Literal["auto", "off"] | None = key("auto", _FUSED, why="equal up to rounding, faster, less memory")
    """Faster kernels: on a GPU Liger's norms, rotary embeddings and activations, if installed; plain LoRA fused with its
    layer; DoRA's norms once a step; logits in chunks. off: none of these, for comparison."""
    dequantized_copy: Literal["auto", "always", "never"] | None = key("auto", _COPIES, why="saves work in every step")
    """Dequantize 4-bit weights once instead of at every step; auto: if memory allows."""
    on_oom: Literal["fit", "error"] | None = key("fit", _ON_OOM, why="the run goes on with the same rows in every step")
    """Reduce a step that does not fit into GPU memory, at the same effective batch, in this order: the micro-batch is halved
    and the accumulation doubled, activations are recomputed, the dequantized copy of 4-bit weights is given up. Micro-steps
    are merged if a measurement says that this is faster. error: a step that does not fit ends the run."""
    fsdp: bool | Literal["full_shard", "full_shard auto_wrap"] | None = key(
        False,
        "each process holds a part of the base model's weights (FSDP2)",
        off="each process holds the whole base model",
        why="a base model that fits one GPU trains faster without it",
    )
    """Shard the base model's weights over the processes of a job, for a model larger than a card: true, or "full_shard" as in
    transformers. Needs several processes; each has the whole adapter."""


@dataclass(frozen=True)
class ComputeConfig:
    """Device and precision of the step. capture: a CUDA graph is requested; the kernel plan says whether there is one."""

    device: DeviceName
    dtype: Dtype
    tf32: bool
    attention: Attention
    checkpointing: Checkpointing
    reentrant: bool
    torch_compile: bool
    compile_backend: Compiler
    compile_mode: Mode
    fused_kernels: Literal["auto", "off"]
    dequantized_copy: Literal["auto", "always", "never"]
    on_oom: Literal["fit", "error"]
    capture: bool = True
    fsdp: bool = False

    @property
    def fuses_lora(self) -> bool:
        """Whether plain LoRA is fused with its layer; torch.compile does that itself."""
        return self.fused_kernels != "off" and not self.torch_compile
