"""Blocks of a run where a manifest writes nothing: made from the defaults, so that no test has to know of a new key."""

from __future__ import annotations

from expert_cli.config.compute_defaults import compute
from expert_cli.config.settings import Settings
from expert_cli.config.training_defaults import adapter, log_save_eval, optim
from expert_cli.manifest.schema import EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig
from tests.machines import CPU

ADAPTER = adapter(Settings(TrainingConfig(rank=4)))
OPTIM = optim(Settings(TrainingConfig()))
COMPUTE = compute(Settings(TrainingConfig()), CPU, "cpu", "int4")
LOG_SAVE_EVAL = log_save_eval(Settings(TrainingConfig()), Settings(EvaluationBlock()))
