"""Models of the Hugging Face hub, through the hub client's own cache."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
from huggingface_hub import errors

from expert_cli._compat import hub_bar
from expert_cli.errors import EnvironmentProblem
from expert_cli.model.loading.names import PACKAGE_EXAMPLE
from expert_cli.utils.disk_errors import disk_problem
from expert_cli.utils.offline import forbidden_by
from expert_cli.utils.reporter import Reporter

_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model"]
_UNWANTED = ["*/*", "*.py", "*.bin", "*.pt", "*.pth"]
ELSEWHERE = f"Another base model of the manifest, --base-model {PACKAGE_EXAMPLE}, or a local folder"


def fetch_snapshot(model_id: str, *, offline: bool, report: Reporter) -> Path:
    """Return the folder in the hub client's cache with safetensors, configuration and tokenizer of `model_id`.

    `offline` (or HF_HUB_OFFLINE) looks in the cache only. Raises EnvironmentProblem where the model is not to be had.
    """
    forbidden = forbidden_by(asked=offline)
    try:
        with report.progress(f"Fetching {model_id} from the Hugging Face hub", None, "B") as bar:
            found = huggingface_hub.snapshot_download(
                model_id,
                allow_patterns=_WANTED,
                ignore_patterns=_UNWANTED,
                local_files_only=bool(forbidden),
                tqdm_class=hub_bar(bar.update),
            )
    except (OSError, ValueError, RuntimeError, _http_error()) as error:
        raise _problem(model_id, error, forbidden) from error
    return Path(found)


def _http_error() -> type[Exception]:
    """The root of the errors of the client's HTTP library (httpx in 1.x, httpx2 in 2.x)."""
    return next(base for base in errors.HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _problem(model_id: str, error: Exception, forbidden: str) -> EnvironmentProblem:
    if isinstance(error, errors.GatedRepoError):
        return EnvironmentProblem(
            f"{model_id} is gated: its owner asks for an agreement first",
            f"Accept it on https://huggingface.co/{model_id} and log in (hf auth login), or {ELSEWHERE}",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return EnvironmentProblem(f"{model_id} is not on the Hugging Face hub, or is private", ELSEWHERE)
    if forbidden:
        return EnvironmentProblem(
            f"{model_id} is not complete in the hub client's cache, and the network may not be used: {forbidden}",
            ELSEWHERE,
        )
    failed = f"cannot fetch {model_id} to {huggingface_hub.constants.HF_HUB_CACHE}"
    if problem := disk_problem(error, failed, "name another folder in HF_HUB_CACHE"):
        return problem
    cause = error.__cause__ or error
    return EnvironmentProblem(f"{model_id} cannot be fetched: {type(cause).__name__}", ELSEWHERE)
