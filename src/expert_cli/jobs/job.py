"""What a job is, and the file that a scheduler takes for it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.errors import InputError
from expert_cli.jobs.registry import TARGETS, Target, TargetName
from expert_cli.utils.paths import slug

if TYPE_CHECKING:
    pass

TRIES = 3
"""How often exit code 3, the machine lacks something, is tried again."""
GRACE_S = 120
"""Seconds from the signal to the kill: a step and a checkpoint have to fit."""
_NAME = r"[a-z]([a-z0-9-]{0,49}[a-z0-9])?"
"""What SLURM, SkyPilot and, of a Service and the pods of an indexed Job, Kubernetes take."""
_FORMS = {
    "time": (r"\d+|(\d+-)?\d+(:\d\d){1,2}|\d+-\d+", "minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS"),
    "image": (r"\S+", "the name of a container image, such as python:3.11"),
    "storage": (r"\S+", "the name of a volume claim or the URL of a bucket"),
}


@dataclass(frozen=True)
class Job:
    """What is asked of a scheduler. gpus: of one node, a process each. base_model: as `train` takes it, "" for the first.

    options: those that not every scheduler takes (time, image, storage, spot); None or False where not given.
    """

    target: TargetName
    manifest: Path
    nodes: int = 1
    gpus: int = 1
    name: str = ""
    base_model: str = ""
    options: Mapping[str, str | bool | None] | None = None


def job_file(job: Job, version: str) -> tuple[str, str]:
    """Return the job's name and its file. version: of expert-cli.

    Raises InputError: a manifest or an option that the scheduler cannot take.
    """
    from expert_cli.config.resolve import Overrides, choose_base, merge
    from expert_cli.manifest.reader import load_manifest

    target = TARGETS[job.target]
    options = _options(job, target)
    loaded = load_manifest(job.manifest)
    merged = merge(loaded, *choose_base(loaded, job.base_model or None), Overrides())
    name, manifest = _name(job, loaded.manifest.name), _manifest_path(job, target)
    values = {
        **options,
        "name": name,
        "nodes": job.nodes,
        "gpus": job.gpus,
        "processes": job.nodes * job.gpus,
        "manifest": manifest,
        "output": (Path(manifest).parent / "weights" / slug(merged.base.name)).as_posix(),
        "base": merged.base.name,
        "model": ["--base-model", job.base_model] if job.base_model else [],
        "prepares": True,
        "version": version,
        "tries": TRIES,
        "grace_s": GRACE_S,
    }
    return name, _render(target.template, values)


def _options(job: Job, target: Target) -> dict[str, str | bool | None]:
    """Return the value of every option that this scheduler takes. Raises InputError for one that it does not."""
    given = {name: value for name, value in (job.options or {}).items() if value not in (None, False)}
    for name, value in given.items():
        if name not in target.defaults:
            takers = " or ".join(one for one, other in TARGETS.items() if name in other.defaults)
            remedy = target.refused.get(name, f"it goes with --for {takers}")
            raise InputError(f"--{name} is nothing that --for {job.target} takes", remedy)
        form, words = _FORMS.get(name, (".*", ""))
        if isinstance(value, str) and not re.fullmatch(form, value):
            raise InputError(f'--{name} "{value}" is not {words}')
    options = {**target.defaults, **given}
    for name, chosen in options.items():
        if chosen is None:
            raise InputError(
                f"--for {job.target} needs --{name}: the disks of its machines vanish, and the run with them",
                f"name a bucket of yours: --{name} s3://BUCKET/FOLDER",
            )
    return options


def _name(job: Job, expert: str) -> str:
    """Return the name that was asked for, else one made of the expert's."""
    name = job.name or re.sub(r"^(?=[^a-z])", "expert-", slug(expert))[:51].rstrip("-")
    if not re.fullmatch(_NAME, name):
        raise InputError(
            f'--name "{name}" cannot be the name of a job', "use up to 51 of a-z, 0-9 and -, a letter first"
        )
    return name


def _manifest_path(job: Job, target: Target) -> str:
    """Return the manifest's path as it is from the folder in which the job starts."""
    path, here = job.manifest.absolute(), Path.cwd()
    if not str(path).isprintable():
        raise InputError(f"{job.manifest}: a path with control characters cannot stand in the file", "rename it")
    if path.is_relative_to(here) and ".." not in path.parts:
        return path.relative_to(here).as_posix()
    if target.shares_folder:
        return path.as_posix()
    raise InputError(
        f"--for {job.target}: {job.manifest} does not lie below {here}, the folder that is taken along",
        "give the command in a folder that holds the manifest and its data",
    )


def _render(template: str, values: Mapping[str, Any]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("expert_cli", "jobs/files"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  a shell script and YAML: what comes from outside goes through `sh` and `yaml`
    )
    environment.filters |= {"sh": _shell, "yaml": json.dumps}
    return environment.get_template(template).render(values)


def _shell(value: str | list[str]) -> str:
    return shlex.quote(value) if isinstance(value, str) else shlex.join(value)
