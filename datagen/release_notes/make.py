"""Write the rows and cases of examples/release-notes: a line of Django's release notes goes in, the part it is about comes out.

    python -m datagen.release_notes.make

People wrote both, the line and the heading it stands under. pip fetches Django's source distribution, a pinned one, and only
its release notes are read. A line that reads nearly as an earlier one does (most releases raise the iterations of a hash)
is left out, so no case has a near copy among the rows; of what is left each label gives a quarter to the cases. Django's
license stands beside them (LICENSE-DJANGO): it asks for that.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from datagen.common.dataset_files import Row, write_jsonl

HOME = Path(__file__).resolve().parents[2] / "examples" / "release-notes"
PINNED = "Django==5.2.8 --hash=sha256:23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f"
SEED = 7
CASES = 0.25
NEAR = 0.6
LONGEST = 600  # characters: the few that are longer are tables and code

LABELS = {
    "models": "Models",
    "gis": "django.contrib.gis",
    "admin": "django.contrib.admin",
    "commands": "Management Commands",
    "backends": "Database backend API",
    "auth": "django.contrib.auth",
    "tests": "Tests",
    "forms": "Forms",
    "postgres": "django.contrib.postgres",
    "requests": "Requests and Responses",
    "templates": "Templates",
}
"""The heading that each stands for: those with 50 lines and more."""
QUESTION = f"Which part of Django is this release note about: {', '.join(LABELS)}?"

_HEADING = re.compile(r"^(\S.*)\n([=~\-^\"])\2{2,}$", re.MULTILINE)
_LINE = re.compile(r"^\* (.+(?:\n  \S.*)*)", re.MULTILINE)
_ROLE = re.compile(r":[\w:-]+:`(?:([^<`]+?)\s*<[^`]+>|(~?)([^`]+))`")


def fetched(folder: Path) -> dict[str, str]:
    """Fetch the source distribution into a folder; return the release notes in it by name."""
    wanted = folder / "pinned.txt"
    wanted.write_text(PINNED, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=Django"]
    subprocess.run([*pip, "--dest", str(folder), "--requirement", str(wanted)], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        inside = [member for member in archive if "/docs/releases/" in member.name and member.isfile()]
        return {Path(member.name).stem: archive.extractfile(member).read().decode() for member in inside}  # type: ignore[union-attr]


def as_read(text: str) -> str:
    """Return a line without the marks of reStructuredText, on one line, as the documents show it."""

    def shown(match: re.Match[str]) -> str:
        title, short, target = match.groups()
        return title or (target.rpartition(".")[2] if short else target.lstrip(".").lstrip("~"))

    text = _ROLE.sub(shown, " ".join(text.split()))
    return re.sub(r"`([^<`]+?)\s*<[^`]+>`_+", r"\1", text).replace("``", "").rstrip(":")


def lines(releases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every line under a heading of `LABELS`, with its label, release after release."""
    label_of = {heading: label for label, heading in LABELS.items()}
    for name in sorted(releases, key=lambda name: [int(part) for part in re.findall(r"\d+", name)]):
        headings = [*_HEADING.finditer(releases[name])]
        ends = [heading.start() for heading in headings[1:]] + [len(releases[name])]
        for heading, end in zip(headings, ends, strict=True):
            label = label_of.get(as_read(heading[1]))
            for line in _LINE.findall(releases[name], heading.end(), end) if label else ():
                if len(line) <= LONGEST:
                    yield as_read(line), str(label)


def apart(found: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the lines by label without those that share `NEAR` of their words with an earlier one (Jaccard)."""
    kept: dict[str, list[str]] = defaultdict(list)
    seen: list[set[str]] = []
    for text, label in found:
        words = set(re.findall(r"[a-z_]+", text.lower()))
        if all(len(words & other) < NEAR * len(words | other) for other in seen):
            seen.append(words)
            kept[label].append(text)
    return kept


def split(releases: Mapping[str, str]) -> tuple[list[Row], list[Row]]:
    """Return (rows, cases)."""
    random, rows, cases = Random(SEED), list[tuple[str, str]](), list[tuple[str, str]]()
    for label, texts in apart(lines(releases)).items():
        random.shuffle(texts)
        count = round(CASES * len(texts))
        cases += [(text, label) for text in texts[:count]]
        rows += [(text, label) for text in texts[count:]]
    random.shuffle(rows)
    asked = {"verifier": "choice", "labels": list(LABELS), "prompt": QUESTION}
    return (
        [{"instruction": QUESTION, "input": text, "output": label} for text, label in rows],
        [
            {"id": f"note-{n}", "category": label, **asked, "input": text, "expected": label}
            for n, (text, label) in enumerate(cases, start=1)
        ],
    )


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as folder:
        rows, cases = split(fetched(Path(folder)))
    print(f"{write_jsonl(HOME / 'train.jsonl', rows)} rows, {write_jsonl(HOME / 'tests' / 'cases.jsonl', cases)} cases")


if __name__ == "__main__":
    main()
