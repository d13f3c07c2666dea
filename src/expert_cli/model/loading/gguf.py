"""A GGUF file as a model folder: dequantized once to bf16 safetensors in the cache, with its tokenizer.

The quantization of the file is undone, not refined: a 4-bit GGUF gives a bf16 model with 4-bit accuracy.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, GgufConfig
from transformers.utils import logging as hf_logging

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.cache import materialize
from expert_cli.model.loading.gguf_tokenizer import gguf_tokenizer
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

FORMAT = 1
"""Counts what `convert` writes: another number makes every folder anew."""


def convert(file: Path, sha256: str, cache: Path, report: Reporter) -> Path:
    """Return the folder with the model of a GGUF file whose hash is `sha256`, made in `cache` if it is not there.

    Raises IntegrityError for a file that is cut off or lacks tensors, InputError for an architecture transformers cannot
    read, EnvironmentProblem for a full disk or too little memory.
    """
    folder = cache / "gguf" / f"{sha256[:24]}-v{FORMAT}"

    def build(target: Path) -> None:
        report.info(f"Unpacking {file.name} to bf16 safetensors, once, in {folder}")
        _convert(file, target, report)

    materialize(folder, build, report)
    return folder


def gguf_sha256(file: Path) -> str:
    """Return the sha256 of a file that begins as a GGUF does; raise IntegrityError otherwise."""
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"GGUF":
            return sha256_of(file)
    except OSError as error:
        raise EnvironmentProblem(f"{file}: cannot be read: {error.strerror or error}") from error
    raise IntegrityError(f"{file} is no GGUF file: it begins with {magic!r}", "Fetch the file again")


def _convert(file: Path, target: Path, report: Reporter) -> None:
    metadata, tensors = _read(file)
    tokenizer = gguf_tokenizer(file, metadata, report)
    model = _load(file, metadata)
    if "rope_freqs.weight" in tensors:
        report.warning(
            f"{file.name}: its scaled rotary frequencies are not carried over; better use the safetensors model"
        )
    with quiet():
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


def _read(file: Path) -> tuple[dict[str, Any], set[str]]:
    """Return metadata and tensor names of a GGUF file; raise IntegrityError where it is cut off."""
    try:
        reader = GGUFReader(file)
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        return metadata, {tensor.name for tensor in reader.tensors}
    except (ValueError, KeyError, IndexError, struct.error, OverflowError) as error:
        raise IntegrityError(f"{file} is cut off or damaged: {error}", "Fetch the file again") from error


def load_gguf(file: Path, dtype: torch.dtype) -> Any:
    """Return the model of a GGUF file, dequantized, on the CPU. Raises as `convert` does."""
    metadata, _ = _read(file)
    return _load(file, metadata, dtype)


def _load(file: Path, metadata: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Any:
    try:
        # The loader of older architectures draws a bar of its own, whatever it is told.
        with quiet(), redirect_stderr(io.StringIO()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=dtype,
                trust_remote_code=False,
                output_loading_info=True,
            )
            model, info = loaded
    except (ValueError, KeyError, NotImplementedError) as error:
        architecture = metadata.get("general.architecture")
        raise InputError(
            f"{file}: transformers cannot read this GGUF of architecture {architecture}: {first_line(error)}",
            "Use the model as safetensors",
        ) from error
    except (MemoryError, RuntimeError) as error:
        raise EnvironmentProblem(
            f"{file} cannot be unpacked: {first_line(error)}", "It needs 2 bytes of memory a weight, and some more"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing:  # they would be random numbers
        raise IntegrityError(
            f"{file} lacks {len(missing)} weights of the model: {', '.join(missing[:3])}", "Use another GGUF file"
        )
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and remarks off the terminal for a while; errors still show."""
    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()
