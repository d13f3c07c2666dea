"""Nests of states, there and back, bit for bit."""

from __future__ import annotations

import enum
import json
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from expert_cli.training.checkpointing.serialization import capture_rng, deserialize, own_memory, restore_rng, serialize

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
NESTS: dict[str, Any] = {
    "nothing": {},
    "numbers": {"a": 1, "b": 0.1, "c": True, "d": None, "e": -0.0, "f": 10**30},
    "no JSON numbers": [math.inf, -math.inf],
    "keys that are numbers": {0: "int", "0": "text", 1: {2: 3}},
    "tuples and lists": ((0.9, 0.999), [1, (2, [3, ()])], []),
    "words of the format": {"map": 1, "tensor": "x", "tuple": {"items": []}},
    "text": "ä\u2028\n",
}


def there_and_back(value: Any) -> Any:
    tree, tensors = serialize(value)
    return deserialize(json.loads(json.dumps(tree, allow_nan=False)), tensors)


@pytest.mark.parametrize("value", NESTS.values(), ids=NESTS.keys())
def test_without_tensors(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert repr(back) == repr(value)  # also the types, and the sign of -0.0


def test_not_a_number() -> None:
    assert math.isnan(there_and_back({"loss": math.nan})["loss"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5)], ids=str)
def test_tensors_of_every_kind(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 7).to(dtype)
    back = there_and_back({0: {"state": tensor}})[0]["state"]
    assert (back.dtype, back.shape) == (dtype, shape)
    assert torch.equal(back.view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8))


def test_a_tensor_in_two_places_stays_one() -> None:
    shared = torch.arange(4.0)
    tree, tensors = serialize(
        {0: {"qmap": shared}, 1: {"qmap": shared}, "view": shared[:2], "other": torch.arange(4.0)}
    )
    assert sorted(tensors) == ["0/qmap", "other", "view"]
    back = deserialize(tree, tensors)
    assert back[0]["qmap"] is back[1]["qmap"]
    assert back["view"].tolist() == [0.0, 1.0]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) == 3


def test_views_are_written_alone_and_in_order() -> None:
    table = torch.arange(12.0).reshape(3, 4)
    owned = own_memory({"turned": table.T, "row": table[1], "parameter": torch.nn.Parameter(table)})
    assert all(tensor.is_contiguous() and not tensor.requires_grad for tensor in owned.values())
    assert owned["turned"].tolist() == table.T.tolist()
    assert owned["row"].untyped_storage().nbytes() == 16


def test_equal_names_do_not_meet() -> None:
    tree, tensors = serialize({0: torch.tensor(1.0), "0": torch.tensor(2.0)})
    back = deserialize(tree, tensors)
    assert (back[0].item(), back["0"].item()) == (1.0, 2.0)


def draw() -> list[Any]:
    return [
        random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn()),
        torch.rand(3).tolist(), torch.randn(1).tolist(), torch.randperm(9).tolist(),
    ]  # fmt: skip


class Color(str, enum.Enum):
    RED = "red"


FORMLESS = (object(), {1, 2}, b"x", Color.RED, np.float32(1), draw)


@pytest.mark.parametrize("value", FORMLESS, ids=lambda value: type(value).__name__)
def test_what_has_no_form_is_refused_by_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^groups/0/extra: a "):
        serialize({"groups": [{"extra": value}]})


def test_random_generators_go_on_where_they_were() -> None:
    _ = random.gauss(0, 1), np.random.randn()  # both keep a second number for the next call
    rng = there_and_back(capture_rng())
    first = draw()
    assert draw() != first
    restore_rng(rng)
    assert draw() == first
