"""What a run or a token store begins with: its files, base model, tokenizer and template, located and looked at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from expert_cli.config.adapter_origin import PROMPTING
from expert_cli.config.init_adapter import init_origin, require_same_base
from expert_cli.config.run_config import RunConfig
from expert_cli.data.select import RowReader
from expert_cli.data.sources import LocatedData, locate_data
from expert_cli.data.store.files import file_hashes
from expert_cli.data.store.lookup import StoreInputs
from expert_cli.inference.expert import PromptRenderer, locate_base, prompt_template
from expert_cli.model.loading.sources import LocalModel
from expert_cli.model.tokenizer import TokenizerInfo, load_tokenizer
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class DataInputs(StoreInputs):
    """What a store is made of, and the base model that the tokenizer is of."""

    tokenizer: TokenizerInfo
    source: LocalModel

    @cached_property
    def renderer(self) -> PromptRenderer:
        """What writes prompts down as the rows are."""
        return PromptRenderer(self.tokenizer, self.template)


def resolve_inputs(run: RunConfig, report: Reporter, located: LocatedData | None = None) -> DataInputs:
    """Locate data, unless it is `located`, and base model. Raises InputError, EnvironmentProblem, IntegrityError."""
    local = run.manifest.parent / "datasets" / "train.jsonl"
    located = located or locate_data(run.data, report, alternatives=(local,) if local.is_file() else ())
    source = locate_base(run, report)
    tokenizer = load_tokenizer(source.folder)
    columns = RowReader.of(located.train[0], run.data).columns
    of_prompts = [name for name in PROMPTING if getattr(run.model, name) not in (None, "", ())]
    of_prompts += ["system_prompt"] if run.model.system_prompt == "" else []
    if columns.form in ("text", "segments") and of_prompts:
        names = ", ".join(of_prompts)
        report.warning(f"{names}: rows of whole documents are trained as they are; it stands in later prompts alone")
    template = prompt_template(run, tokenizer, columns.input)
    return DataInputs(located, tokenizer, template, file_hashes(run.store), source)


def training_inputs(run: RunConfig, report: Reporter) -> DataInputs:
    """Return the inputs of a run that trains. Raises InputError also where they do not fit the adapter it trains on from."""
    inputs = resolve_inputs(run, report)
    if origin := init_origin(run):
        require_same_base(origin, inputs.source.name, inputs.source.sha256, inputs.template.fingerprint)
    return inputs
