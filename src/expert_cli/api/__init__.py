"""expert-cli as a Python library: a function for each command, which returns what the command prints.

They print nothing: what happens is told to `reporter`. Every error that a user can meet is an `ExpertError`, which says what
is wrong (`message`) and what to do (`hint`, in the words of the command line). Heavy libraries are imported by the first call.
"""

from expert_cli.api.experts import audit, evaluate, load_expert
from expert_cli.api.manifests import validate
from expert_cli.api.rewards import binary_reward, dense_reward
from expert_cli.api.stores import explain_store, pretokenize
from expert_cli.api.training import estimate_run, train

__all__ = [
    "audit",
    "binary_reward",
    "dense_reward",
    "estimate_run",
    "evaluate",
    "explain_store",
    "load_expert",
    "pretokenize",
    "train",
    "validate",
]
