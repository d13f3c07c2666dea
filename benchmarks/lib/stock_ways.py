"""The usual ways to train: transformers' Trainer with PEFT, padded and flattened, and TRL's SFTTrainer."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.lib.train_job import Job


def stock_model(job: Job) -> Any:
    """Return the model as PEFT's and transformers' guides make it; without the cast of norms and head to fp32."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, set_seed

    adapter, device = job.run.adapter, job.run.compute.device
    nf4 = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    base = AutoModelForCausalLM.from_pretrained(
        job.inputs.source.folder,
        dtype=torch.bfloat16 if job.run.compute.dtype == "bf16" else torch.float32,
        quantization_config=nf4 if job.run.model.quantization == "int4" else None,
        attn_implementation="sdpa",
        device_map={"": 0 if device == "cuda" else "cpu"},
    )
    base.config.use_cache = False
    set_seed(job.run.seed)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, config)


def arguments(job: Job) -> dict[str, Any]:
    """Return the Trainer's arguments, as close to ours as it has them."""
    optim, on_gpu = job.run.optim, job.on_gpu
    return {
        "output_dir": str(job.run.output),
        "max_steps": len(job.steps),
        "learning_rate": optim.learning_rate,
        "lr_scheduler_type": optim.scheduler,
        "warmup_steps": optim.warmup,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        "optim": optim.optim,
        "bf16": job.run.compute.dtype == "bf16",
        "tf32": job.run.compute.tf32 if on_gpu else None,
        "use_cpu": not on_gpu,
        "logging_steps": job.logged,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "seed": job.run.seed,
    }


def stock(job: Job, collator: Any) -> tuple[list[float], Any]:
    """Train with transformers' Trainer."""
    from transformers import Trainer, TrainingArguments

    model = stock_model(job)
    trainer = in_our_steps(Trainer, job)(
        model=model,
        args=TrainingArguments(**arguments(job)),
        train_dataset=job.documents,
        data_collator=collator,
        callbacks=[job.meter],
    )
    trainer.train()
    return logged_losses(trainer), model


def padded(job: Job) -> tuple[list[float], Any]:
    """Pad to the longest row of a step."""
    from transformers import DataCollatorForSeq2Seq

    tokenizer = job.inputs.tokenizer.hf
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return stock(job, DataCollatorForSeq2Seq(tokenizer, padding=True))


def flat(job: Job) -> tuple[list[float], Any]:
    """Lay the rows of a step end to end."""
    from transformers import DataCollatorWithFlattening

    return stock(job, DataCollatorWithFlattening(return_flash_attn_kwargs=False))


def trl(job: Job) -> tuple[list[float], Any]:
    """Train with TRL's SFTTrainer, without padding."""
    import datasets

    from expert_cli.hardware.machine import has_package

    library = importlib.import_module("trl")
    tokenizer = job.inputs.tokenizer.hf
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    liger = job.on_gpu and has_package("liger_kernel")
    settings = library.SFTConfig(**arguments(job), padding_free=True, max_length=None, use_liger_kernel=liger)
    model = stock_model(job)
    trainer = in_our_steps(library.SFTTrainer, job)(
        model=model,
        args=settings,
        train_dataset=datasets.Dataset.from_list(job.documents),
        processing_class=tokenizer,
        callbacks=[job.meter],
    )
    trainer.train()
    job.meter.found["liger"] = liger
    return logged_losses(trainer), model


def in_our_steps(trainer: Any, job: Job) -> Any:
    """Return a Trainer class that reads the documents of our steps, each step in one batch."""
    from torch.utils.data import DataLoader

    class InOurSteps(trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return DataLoader(
                self.train_dataset,
                batch_sampler=job.steps,
                collate_fn=self.data_collator,
                num_workers=job.run.loader.num_workers,
                pin_memory=job.on_gpu,
            )

    return InOurSteps


def logged_losses(trainer: Any) -> list[float]:
    """Return the losses that a Trainer logged."""
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]
