"""A README's configurations: every form that is written, and nothing that whoever wrote it could do harm with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from expert_cli.data.sources import dataset_card
from expert_cli.data.sources.dataset_card import CardConfig, load_configs
from expert_cli.errors import InputError


def written(folder: Path, block: str) -> Path:
    path = folder / "README.md"
    path.write_text(f"---\n{block}\n---\n# Words\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param("license: mit", (), id="none"),
        pytest.param(
            "configs:\n- config_name: no\n  data_files: a.jsonl",
            (CardConfig("no", False, "", {"train": ("a.jsonl",)}),),
            id="a name that YAML takes for false",
        ),
        pytest.param(
            "configs:\n- data_dir: ./x/\n  default: true\n  features: [{1: 2}]",
            (CardConfig("default", True, "x", None),),
            id="a folder",
        ),
        pytest.param(
            "configs:\n- config_name: 2024\n  data_files: {train: [a*, b], test: c}\n  data_dir: null",
            (CardConfig("2024", False, "", {"train": ("a*", "b"), "test": ("c",)}),),
            id="splits by name",
        ),
        pytest.param(
            "configs:\n- data_files:\n  - {split: train, path: &p [a, b]}\n  - {split: test, path: *p}",
            (CardConfig("default", False, "", {"train": ("a", "b"), "test": ("a", "b")}),),
            id="a list of splits, an alias",
        ),
    ],
)
def test_configurations_are_read_as_they_are_written(
    tmp_path: Path, block: str, expected: tuple[CardConfig, ...]
) -> None:
    assert load_configs(written(tmp_path, block)) == expected


def test_a_readme_that_is_absent_or_has_no_block_names_nothing(tmp_path: Path) -> None:
    assert load_configs(tmp_path / "README.md") == ()
    (tmp_path / "README.md").write_bytes(b"\xff# Words\n---\nconfigs: [\n---\n")
    assert load_configs(tmp_path / "README.md") == ()


TOO_DEEP = "nested more than 50 deep|is not valid YAML"  # PyYAML from 6.0.4 on stops by itself, at 1,000
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
MERGES = "m0: &m0 {k: v}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        pytest.param("configs: [", "not valid YAML", id="not closed"),
        pytest.param("configs: all", '"configs" is not a list of configurations', id="text"),
        pytest.param("configs:\n- data_files: {train: a, train: b}", '"train" stands twice', id="a key twice"),
        pytest.param("x: &a {data_files: a}\nconfigs:\n- <<: *a", "merges mappings", id="a merge"),
        pytest.param("configs: &a [*a]", r"uses the alias \*a before it is defined", id="a circle"),
        pytest.param(f"{BOMB}configs:\n- data_files: *a39", '"data_files" in "configs" is a list', id="alias bomb"),
        pytest.param(f"{MERGES}configs: [*m59]", "merges mappings", id="merge bomb"),
        pytest.param("configs: " + "[" * 400_000, TOO_DEEP, id="brackets"),
    ],
)
def test_what_is_odd_or_hostile_is_refused_at_once(tmp_path: Path, block: str, message: str) -> None:
    path = written(tmp_path, block)
    started = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        load_configs(path)
    assert time.monotonic() - started < 1
    assert caught.value.message.startswith(f"{path}: ")
    assert len(caught.value.message) < len(str(path)) + 200


def test_a_block_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_card, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="its metadata block is longer than 1,000 bytes"):
        load_configs(written(tmp_path, "a: " + "x" * 1000))
    path = written(tmp_path, "configs: [{data_files: a}]")
    path.write_text(path.read_text(encoding="utf-8") + "words " * 1000, encoding="utf-8")
    assert len(load_configs(path)) == 1
