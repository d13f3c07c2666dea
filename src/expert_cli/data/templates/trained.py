"""Which turns of a conversation carry loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from expert_cli.config.run_config import DataConfig
from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import Message
from expert_cli.data.templates.segment import TurnMask
from expert_cli.errors import InputError

ANSWERS = ("assistant",)


@dataclass(frozen=True)
class TrainedTurns:
    """What of a row is trained, as the manifest says.

    completion_only: off, all that is written is trained, but for answers that say otherwise. roles: whose turns are trained,
    but for those that say otherwise. last_alone: of the turns that are trained the last one alone.
    """

    completion_only: bool = True
    roles: tuple[str, ...] = ANSWERS
    last_alone: bool = False

    @classmethod
    def of(cls, data: DataConfig) -> TrainedTurns:
        """Return what a run trains."""
        return cls(data.completion_only, data.roles_to_train, data.mask_history)

    def __str__(self) -> str:
        """Return it as a store's key has it."""
        if not self.completion_only:
            return "everything"
        whose = "answers" if self.roles == ANSWERS else f"turns of {', '.join(sorted(self.roles))}"
        return f"{whose}, the last alone" if self.last_alone else whose

    def of_turns(self, turns: Sequence[Message]) -> tuple[TurnMask, ...]:
        """Return for each turn whether its tokens carry loss by themselves, and not as everything does.

        Raises InputError: a turn says that it is trained, or that it is not, and that cannot be.
        """
        masks = tuple(map(self._of_turn, turns))
        last = max((number for number, mask in enumerate(masks) if mask.trained), default=-1)
        if not self.last_alone:
            return masks
        return tuple(
            TurnMask(False, mask_reasons.NOT_LAST) if mask.trained and number != last else mask
            for number, mask in enumerate(masks)
        )

    def _of_turn(self, turn: Message) -> TurnMask:
        if turn.trained is None:
            return TurnMask(turn.role in self.roles, "" if turn.role in self.roles else mask_reasons.OTHER_ROLE)
        if turn.trained and turn.role not in self.roles:
            raise InputError(
                f"a turn of {turn.role} says that it is trained, but roles_to_train is {', '.join(self.roles)}",
                f'Write "roles_to_train": [..., "{turn.role}"], or leave out what the turn says.',
            )
        if not (turn.trained or self.completion_only or turn.role == "assistant"):
            raise InputError(
                "a turn that is no answer is not to be trained, but completion_only_loss is false",
                "Leave completion_only_loss out, or weight and train of that turn.",
            )
        return TurnMask(turn.trained, turn.reason)


BY_DEFAULT = TrainedTurns()
"""The answers."""
