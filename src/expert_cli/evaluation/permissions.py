"""What judging does only where a user allows it: run the commands that cases name, and programs without walls around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import CaseAnswer, EvalCase
from expert_cli.evaluation.verifiers.sandbox.isolation import is_network_shut, standing_walls
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class Permissions:
    """What a user allows: commands that cases name, which see all that he sees; answers that are programs, where nothing of the
    system keeps them from the network.
    """

    commands: bool = False
    without_walls: bool = False

    def require(self, cases: Sequence[EvalCase | CaseAnswer], report: Reporter) -> None:
        """Raise InputError for the first case that names a command, EnvironmentProblem for the first whose answer is a program,
        where that is not allowed; tell which walls stand around programs.
        """
        first = {row.case.starts: row for row in reversed(cases)}
        command, answer = first.get("command"), first.get("answer")
        if command and not self.commands:
            told = f"{command.where}: this case is judged by a program of its own, {command.case.file_names[0]}"
            raise InputError(told, "read that program; if you trust it: --allow-commands")
        if answer is None:
            return
        if not is_network_shut():
            if not self.without_walls:
                raise EnvironmentProblem(
                    f"{answer.where}: answers to {answer.case.verifier} cases are programs, and nothing here keeps them from "
                    "the network: neither seccomp nor network namespaces are to be had",
                    "judge them on Linux (expert-cli doctor says which walls stand); if you trust the model: --without-walls",
                )
            report.warning("answers run as programs that nothing keeps from the network")
        report.info(f"walls     {', '.join(standing_walls()) or 'none'} around answers that are programs")


NOTHING = Permissions()
