"""Every file of a folder that looks like rows is read, or named with the reason."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.data.sources.folder import folder_files, pattern_files
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.reporter import NullReporter

posix = pytest.mark.skipif(os.name == "nt", reason="links, pipes and permissions of POSIX")


@dataclass
class Listening(NullReporter):
    warned: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warned.append(text)


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"question": "q", "answer": "a"}\n', encoding="utf-8")
    return folder


def files_of(folder: Path, split: str = "train", config: str = "") -> tuple[list[str], list[str]]:
    """The files that are located, and what is said of others."""
    spec = SourceSpec("folder" if folder.is_dir() else "file", str(folder), config, split)
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)
    reporter = Listening()
    located = locate_data(data, reporter).files()
    return [path.relative_to(folder).as_posix() for path in located], reporter.warned


def test_all_files_below_are_read_and_others_named(tmp_path: Path) -> None:
    made(tmp_path, "b.jsonl", "deep/er/a.JSONL", "c.xlsx", ".d.jsonl", "e.tar.gz", ".f.txt")
    (tmp_path / "notes.txt").write_text("Rows of the second week.\n", encoding="utf-8")
    assert files_of(tmp_path) == (
        ["b.jsonl", "deep/er/a.JSONL"],
        [
            f'{tmp_path}: not read: .d.jsonl (a name that begins with "." or "_"), c.xlsx (".xlsx" is not read), '
            'e.tar.gz (the name before ".gz" is that of no format)'
        ],
    )


LINE = b'{"question": "q", "answer": "a"}'
DATA_BY_CONTENT: dict[str, tuple[bytes, str]] = {
    "rows": (LINE + b"\n", "JSON lines"),
    "list.yaml": (b'[\n  {"question": "q"}]', "a list of JSON objects"),
    "rows.log": (b"PAR1\x15\x04", "Parquet"),
    "stream.raw": (b"\xff\xff\xff\xff\x10\x01\0\0\x10\0", "Arrow"),
    "part-0": (b"\x1f\x8b\x08\0", "gzip"),
    "more.txt": (b"question,answer\r\nq,a\r\n", "the CSV files beside it"),
}
NO_DATA: dict[str, bytes] = {
    "LICENSE": b"MIT License\n",
    "notes.txt": b"{curly} notes\n",
    "broken.txt": b'{"question": "q"\n',
    "other.txt": b"answer,question\n",
    ".hidden": LINE,
}


def with_tables(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_bytes(b"question,answer\nq,a\n")
    return folder


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, k) in DATA_BY_CONTENT.items()], ids=[*DATA_BY_CONTENT])
def test_what_begins_as_data_under_another_ending_is_named(tmp_path: Path, name: str, kind: str) -> None:
    (with_tables(tmp_path) / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(DATA_BY_CONTENT[name][0])
    assert files_of(tmp_path) == (["train.csv"], [f"{tmp_path}: not read: {name} (begins as {kind})"])


@pytest.mark.parametrize("name", NO_DATA)
def test_what_does_not_begin_as_data_is_not_named(tmp_path: Path, name: str) -> None:
    (with_tables(tmp_path) / name).write_bytes(NO_DATA[name])
    assert files_of(tmp_path) == (["train.csv"], [])


@posix
def test_of_other_endings_only_files_are_opened(tmp_path: Path) -> None:
    """What is in a pipe is not taken out of it; what may not be read is named."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made_here:
        folder = with_tables(Path(made_here))
        folder.chmod(0o755)
        os.mkfifo(folder / "pipe")
        pipe = os.open(folder / "pipe", os.O_RDWR)
        os.write(pipe, LINE)
        (folder / "zero.bin").symlink_to("/dev/zero")
        (folder / "gone.txt").symlink_to(folder / "nothing")
        (folder / "secret").write_bytes(LINE)
        (folder / "secret").chmod(0)
        with without_privileges():
            assert files_of(folder) == (["train.csv"], [f"{folder}: not read: secret (may not be looked into)"])
        assert os.read(pipe, 99) == LINE
        os.close(pipe)


def test_a_pattern_names_files_of_one_form(tmp_path: Path) -> None:
    made(tmp_path, "rows/b.jsonl.gz", "rows/a.jsonl.gz", "rows/deep/c.jsonl.gz", "rows/notes.md", "rows/words.txt")
    reporter = Listening()
    pattern = f"{tmp_path}/rows/*"
    assert pattern_files(pattern, reporter) == [tmp_path / "rows" / f"{name}.jsonl.gz" for name in "ab"]
    told = [f"{tmp_path}/rows/{name} (no file of rows by its name)" for name in ("notes.md", "words.txt")]
    assert reporter.warned == [f"{pattern}: not read: {', '.join(told)}"]
    assert [path.name[0] for path in pattern_files(f"{tmp_path}/**/*.gz", reporter)] == ["a", "b", "c"]
    with pytest.raises(InputError, match=r"no file of rows fits this pattern; not read: .*notes\.md"):
        pattern_files(f"{tmp_path}/rows/*.md", reporter)
    made(tmp_path, "rows/a.jsonl", "rows/d.csv.zip")
    with pytest.raises(InputError, match=r"2 formats side by side \(\.jsonl, \.jsonl\.gz\)"):
        pattern_files(f"{tmp_path}/rows/[ab]*", reporter)
    with pytest.raises(InputError, match=r"d\.csv\.zip belongs to these rows"):
        pattern_files(f"{tmp_path}/rows/*", reporter)


def test_text_files_are_rows_where_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "deep/a.txt", "LICENSE"):
        (tmp_path / name).write_text("One.\nTwo.\n", encoding="utf-8")
    assert files_of(tmp_path) == (["b.txt", "deep/a.txt"], [])
    made(tmp_path, "deep/c.tsv.xz")
    assert files_of(tmp_path) == (["deep/c.tsv.xz"], [])


@posix
def test_a_link_to_a_folder_is_read_once(tmp_path: Path) -> None:
    made(tmp_path / "elsewhere", "x.jsonl", "deep/y.jsonl")
    here = made(tmp_path / "here", "a.jsonl", "sub/b.jsonl")
    (here / "linked").symlink_to(tmp_path / "elsewhere")
    (here / "again").symlink_to(here / "sub")
    (tmp_path / "elsewhere" / "circle").symlink_to(here)
    (here / "link.jsonl").symlink_to(tmp_path / "elsewhere" / "x.jsonl")
    files, warned = files_of(here)
    assert files == ["a.jsonl", "link.jsonl", "linked/deep/y.jsonl", "linked/x.jsonl", "sub/b.jsonl"]
    read_already = "(a link to a folder that is read already)"
    assert warned == [f"{here}: not read: again/ {read_already}, linked/circle/ {read_already}"]


@posix
@pytest.mark.parametrize("target", ["gone.jsonl", "b.jsonl"], ids=["to nothing", "in a circle"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    made(tmp_path, "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / target)
    with pytest.raises(InputError, match=r"b\.jsonl: a link that leads nowhere: "):
        files_of(tmp_path)


@posix
def test_a_link_to_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    made(tmp_path, "a.jsonl")
    (tmp_path / "more").symlink_to(tmp_path / "gone")
    (tmp_path / "README.md").symlink_to(tmp_path / "gone.md")
    assert files_of(tmp_path) == (["a.jsonl"], [f"{tmp_path}: not read: more (a link that leads nowhere)"])


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: be nobody for a while."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@posix
@pytest.mark.parametrize("name", ["sub", ".sub", "lost+found"])
def test_a_folder_that_may_not_be_read_stops_the_reading_where_rows_may_be_in_it(name: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as made_here:
        folder = made(Path(made_here), "a.jsonl", f"{name}/b.jsonl")
        folder.chmod(0o755)
        (folder / name).chmod(0)
        with without_privileges():
            if name == "sub":
                with pytest.raises(EnvironmentProblem, match=r"sub: cannot be read: Permission denied"):
                    files_of(folder)
            else:
                assert files_of(folder) == (["a.jsonl"], [])
        (folder / name).chmod(0o755)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a named pipe": os.mkfifo if os.name != "nt" else Path.touch,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: None,
}


@posix
@pytest.mark.parametrize("what", ["a named pipe", "a device"])
@pytest.mark.parametrize("inside", [True, False], ids=["in a folder", "by itself"])
def test_what_is_no_file_is_never_opened(tmp_path: Path, what: str, inside: bool) -> None:
    made(tmp_path, "a.jsonl")
    SPECIAL[what](tmp_path / "b.jsonl")
    with pytest.raises(InputError, match=rf"b\.jsonl: {what}, not a file of rows"):
        files_of(tmp_path if inside else tmp_path / "b.jsonl")


def test_a_folder_of_more_files_than_a_data_set_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expert_cli.data.sources.folder.MOST_FILES", 2)
    made(tmp_path, "a.jsonl", "b.jsonl")
    assert files_of(tmp_path)[0] == ["a.jsonl", "b.jsonl"]
    made(tmp_path, "deep/c.jsonl")
    with pytest.raises(InputError, match="more than 2 files"):
        files_of(tmp_path)


def saved(folder: Path, **state: object) -> Path:
    """A folder as `save_to_disk` writes it, without its content."""
    folder.mkdir(exist_ok=True)
    (folder / "data.arrow").touch()
    said = {"_data_files": [{"filename": "data.arrow"}], "_split": None, **state}
    (folder / "state.json").write_text(json.dumps(said), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("state", "split"), [({}, "train"), ({"_split": "test"}, "train"), ({"_split": "validation"}, "dev")]
)
def test_a_saved_dataset_is_its_one_split(tmp_path: Path, state: dict[str, object], split: str) -> None:
    folder = saved(tmp_path, **state)
    assert folder_files(folder, "", split, NullReporter()) == [folder / "data.arrow"]


@pytest.mark.parametrize(
    ("state", "config", "split", "message"),
    [
        pytest.param({}, "", "test", 'no split "test": a Dataset was saved here, which is one split$', id="no name"),
        pytest.param(
            {"_data_files": [{"filename": "../rows.arrow"}]},
            "",
            "train",
            "a file outside of its folder",
            id="elsewhere",
        ),
        pytest.param(
            {"_indices_data_files": [{"filename": "i.arrow"}]}, "", "train", "a choice of rows by numbers", id="indices"
        ),
    ],
)
def test_what_a_saved_dataset_has_not_is_refused(
    tmp_path: Path, state: dict[str, object], config: str, split: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        folder_files(saved(tmp_path, **state), config, split, NullReporter())
