"""expert-cli as a Python library: a function for each command, which returns what the command prints.

The functions print nothing; progress goes to `reporter`. Expected errors are subclasses of `ExpertError`: `message` says what
is wrong, `hint` what to do, in terms of the command line. Heavy libraries are imported by the first call.
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
