"""Objects of another process, over two streams of JSON lines: how tests use an answer that runs beside them.

    [0, handle, name, arguments, named]      asks an object there: "getattr", "setattr", "method", or an operator's name
    [1 or 2, value, contents, printed]       what came of it, or what it raised

Values go as copies (`codec.py`); a container that was an argument holds afterwards what the call made of it (`contents`). All
else stays where it is, and here an object of a local class, under a handle, asks there for everything. What comes in is data:
it names no code to run here. Operators, with which an object could call itself equal to anything, are asked of classes alone
that the tests name with a capital letter (`remote_types.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NoReturn, Protocol

from expert_cli.evaluation.verifiers.sandbox.python_pair.codec import Codec, Kept
from expert_cli.evaluation.verifiers.sandbox.python_pair.operators import CONTENTS
from expert_cli.evaluation.verifiers.sandbox.python_pair.plain_values import contents, fill
from expert_cli.evaluation.verifiers.sandbox.python_pair.remote_types import COMPARISONS, OPERATORS, USES, Method

MAX_LINE_BYTES = 64 << 20
FORGED = "it wrote where only the judge writes"
ENDED = "it ended before its tests did"
_READING = (COMPARISONS | CONTENTS | {"getattr", "__hash__", "__contains__", "__str__", "__repr__"}) - {"__next__"}
"""What changes no object."""


class Host(Protocol):
    """What a side decides for itself."""

    trusts: bool
    """Whether the other side may name anything of the library, and its classes are asked for every operator."""

    def may(self, thing: Any, name: str, *, change: bool) -> bool:
        """Whether the other side may have an attribute of ours, or change it."""

    def failed(self, error: BaseException) -> None:
        """Hear of an error that is about to go to the other side."""

    def stop(self, why: str, error: BaseException | None = None) -> NoReturn:
        """End this process: the other side has ended, left by an error, or wrote what it never should."""

    def printed(self) -> str:
        """Return what was printed since it was last asked."""


class Peer(Codec):
    """One of the two sides."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO, host: Host, first: Any = None) -> None:
        """Take the streams. first: what the other side finds under handle 0."""
        super().__init__(first, trusts=host.trusts)
        self._reader, self._writer, self._host = reader, writer, host
        self.changes = 0
        self.exits = False

    def ask(self, handle: int, name: str, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
        """Return what an object there answers, or raise what it raised; what it asks meanwhile is answered."""
        kept = Kept()
        self.changes += name not in _READING
        positions = [self._encoded(one, kept) for one in args]
        self._send(
            [0, handle, name, positions, [[key, self._encoded(one, kept)] for key, one in (named or {}).items()]]
        )
        while (message := self.receive())[0] == 0:
            self._answer(message)
        try:
            state, value, states, printed = message
            result = self._decoded(value, kept)
            for container, items in zip(tuple(kept), states, strict=False):
                fill(container, [self._decoded(item, kept) for item in items])
            sys.stdout.write(printed)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it
            self._host.stop(f"{FORGED}: {error}")
        if state == 1:
            return result
        held = isinstance(result, Exception) or (self.exits and isinstance(result, SystemExit))
        if not held or isinstance(result, MemoryError):
            self._host.stop(ENDED, result)
        if isinstance(result, StopIteration) and name != "__next__":  # it would end a loop of the tests
            raise RuntimeError("it raised StopIteration")
        raise result

    def serve(self) -> NoReturn:
        """Answer until the other side ends."""
        while True:
            self._answer(self.receive())

    def _answer(self, message: list[Any]) -> None:
        kept, state = Kept(), 1
        try:
            _, handle, name, args, named = message
            args = [self._decoded(one, kept) for one in args]
            named = {str(key): self._decoded(one, kept) for key, one in named}
            thing = self._exported[handle]
        except Exception as error:  # noqa: BLE001  whatever is wrong with it
            self._host.stop(f"{FORGED}: {error}")
        given = tuple(kept)
        try:
            value = self._encoded(self._done(thing, name, args, named), kept)
        except BaseException as error:  # noqa: BLE001  it goes to who asked
            self._host.failed(error)
            state, value = 2, self._error(error, kept)
        states = [[self._encoded(item, kept) for item in contents(one)] for one in given]
        self._send([state, value, states, self._host.printed()])

    def _done(self, thing: Any, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if name in OPERATORS or name in USES:
            return thing(*args, **named) if name == "__call__" else getattr(type(thing), name)(thing, *args, **named)
        attribute, *rest = args
        if not (isinstance(attribute, str) and self._host.may(thing, attribute, change=name == "setattr")):
            raise AttributeError(f"{attribute} is not to be had")
        if name == "method":
            return getattr(thing, attribute)(*rest, **named)
        if name == "setattr":
            return setattr(thing, attribute, *rest)
        value = getattr(thing, attribute)
        bound = getattr(value, "__self__", None) is thing and not isinstance(value, type)
        return Method(attribute) if bound else value

    def receive(self) -> list[Any]:
        """Return the next message."""
        line = self._reader.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            self._host.stop(ENDED, MemoryError("its result is too large") if len(line) == MAX_LINE_BYTES else None)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, list) or not message:
            self._host.stop(FORGED)
        return message

    def _send(self, message: list[Any]) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            self._writer.flush()
        except OSError:
            self._host.stop(ENDED)
