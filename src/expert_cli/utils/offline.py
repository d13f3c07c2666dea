"""What forbids the network: the option --offline, or a variable of the hub client, which every part of the tool heeds."""

from __future__ import annotations

import os

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""As the hub client reads them: the first that is not empty decides."""


def forbidden_by(*, asked: bool) -> str:
    """Return what forbids the network, by name and with its value, for an error to tell; "" where nothing does.

    asked: whether the option was given. The hub client reads its variables once, when it is imported: its answer counts.
    """
    from huggingface_hub import constants

    reasons = ["--offline is given"] if asked else []
    if constants.HF_HUB_OFFLINE:
        name = next((name for name in VARIABLES if os.environ.get(name)), VARIABLES[0])
        reasons.append(f"the variable {name} is set ({name}={os.environ.get(name, '')})")
    return " and ".join(reasons)
