"""Layers that carry a state along their row, as gated DeltaNet, Mamba and short convolutions do.

No mask keeps documents apart there: whatever lies before a document in its row is in its state and in its convolution. A model
with such layers trains one document a row, padded on the right, where nothing can reach the document.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn
from transformers import PreTrainedModel


def recurrent_layers(model: PreTrainedModel) -> list[Any]:
    """Return the layers that carry a state: those around a convolution over the tokens.

    Some that carry one without it are not found (lightning attention): for these, `isolation` refuses what leaks.
    """
    decoder: Any = model.get_decoder()
    return [m for m in decoder.modules() if any(isinstance(child, nn.Conv1d) for child in m.children())]


def read_as_weights(layer: Any) -> set[str]:
    """Return the names of the linear layers within one that carries a state whose weights it reads itself.

    It passes an adapter by, in some layers only with their CUDA kernels, and then in silence.
    """
    linear = {name for name, child in layer.named_children() if isinstance(child, nn.Linear)}
    return linear & set(re.findall(r"self\.(\w+)\.weight\b", inspect.getsource(type(layer))))
