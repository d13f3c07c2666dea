"""The notebook of the docs runs as it stands, on a tiny model in place of the one that it names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests import tiny

ROOT = Path(__file__).parents[2]


def test_the_notebook_runs(tmp_path: Path) -> None:
    folder, model = tmp_path / "orders", tiny.tiny_model_folder(tmp_path / "tiny-llama")
    shutil.copytree(ROOT / "examples" / "orders", folder)
    notebook = json.loads((ROOT / "docs" / "api.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    values: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), "api.ipynb", "exec"), values)  # noqa: S102  our own notebook
        if "parameters" in cell["metadata"].get("tags", ()):
            values |= {"MANIFEST": folder / "manifest.json", "BASE_MODEL": str(model), "OUTPUT": tmp_path / "run"}
            values |= {"MAX_STEPS": 2, "CASES": 3}
    assert values["result"].document["steps"] == 2
    assert values["evaluated"].evaluation.share.cases == 3
    assert isinstance(values["answer"], str)
