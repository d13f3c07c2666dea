"""Objects of another process, over two streams of JSON lines: how tests use an answer that runs beside them.

    [0, handle, name, arguments, named]      asks an object there: "getattr", "setattr", "method", or an operator's name
    [1 or 2, value, contents, printed]       what came of it, or what it raised

Values go as copies (`plain_values.py`); a container that was an argument holds afterwards what the call made of it (`contents`).
All else stays where it is, and here an object of a local class, under a handle, asks there for everything. What comes in is data:
it names no code to run here.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, BinaryIO, NoReturn, Protocol

from expert_cli.evaluation.verifiers.sandbox.plain_values import (
    BARE,
    BUILTIN_TYPES,
    BY_NAME,
    MUTABLE,
    PLAIN,
    VALUES,
    contents,
    fill,
)
from expert_cli.evaluation.verifiers.sandbox.remote_types import (
    HANDLE,
    OPERATORS,
    OPERATORS_THERE,
    USES,
    Method,
    RemoteType,
    attribute,
    judge,
    set_attribute,
    special,
    specials,
)

MAX_LINE_BYTES = 64 << 20
FORGED = "it wrote where only the judge writes"
ENDED = "it ended before its tests did"

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


class Kept(list[Any]):
    """The containers that a request names, in the order in which both sides meet them."""

    def __init__(self) -> None:
        """Start with none."""
        super().__init__()
        self.places: dict[int, int] = {}

    def keep(self, container: Any) -> None:
        """Add one."""
        self.places[id(container)] = len(self)
        self.append(container)


class Peer:
    """One of the two sides. `shared`: classes that both have, whose objects go as copies."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO, host: Host, first: Any = None) -> None:
        """Take the streams. first: what the other side finds under handle 0."""
        self._reader, self._writer, self._host = reader, writer, host
        self._exported: list[Any] = [first]
        self._handles: dict[int, int] = {}
        self._local: dict[int, Any] = {}
        self.shared: dict[str, type] = {}

    def ask(self, handle: int, name: str, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
        """Return what an object there answers, or raise what it raised; what it asks meanwhile is answered."""
        kept = Kept()
        self._send([0, handle, name, self._encoded([*args], kept), self._encoded(dict(named or {}), kept)])
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
        if not isinstance(result, Exception) or isinstance(result, MemoryError):
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
            args, named = self._decoded(args, kept), self._decoded(named, kept)
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

    def _encoded(self, value: Any, kept: Kept) -> Any:
        kind = type(value)
        if value is None or kind in BARE:
            return ["int", hex(value)] if kind is int and value.bit_length() > 63 else value
        if kind in MUTABLE:
            if id(value) in kept.places:
                return ["same", kept.places[id(value)]]
            kept.keep(value)
            return [kind.__name__, *(self._encoded(item, kept) for item in contents(value))]
        if self.shared.get(kind.__name__) is kind:
            return self._record(value, kept)
        if kind in PLAIN:
            return [kind.__name__, *(self._encoded(item, kept) for item in PLAIN[kind][0](value))]
        if kind is Method:
            return ["method", str(value)]
        if kind is RemoteType or type(kind) is RemoteType:
            return ["yours", vars(value)[HANDLE][1]]
        if isinstance(value, BaseException):
            return self._error(value, kept)
        if isinstance(value, types.TracebackType):
            return None
        if named := self._name(value):
            return named
        if isinstance(value, type):
            shared = self.shared.get(value.__name__) is value
            return ["shared", value.__name__] if shared else self._class(value)
        plain = (base.__str__(value) if base is str else base(value) for base in VALUES if isinstance(value, base))
        return ["object", self._handle(value), self._class(kind), *(self._encoded(one, kept) for one in [*plain][:1])]

    def _record(self, value: Any, kept: Kept) -> list[Any]:
        if isinstance(value, Enum):
            return ["member", type(value).__name__, value.name]
        if id(value) in kept.places:
            return ["same", kept.places[id(value)]]
        kept.keep(value)
        return ["record", type(value).__name__, *(self._encoded(item, kept) for item in contents(value))]

    def _handle(self, thing: Any) -> int:
        if isinstance(thing, types.ModuleType | types.FrameType | types.CodeType):
            raise TypeError(f"a {type(thing).__name__} cannot be handed over")
        if id(thing) not in self._handles:
            self._handles[id(thing)] = len(self._exported)
            self._exported.append(thing)
        return self._handles[id(thing)]

    def _name(self, value: Any) -> list[str]:
        """The name of what the other side has, too; [] for none."""
        if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return []
        module, name = value.__module__ or "", value.__qualname__
        raised = isinstance(value, type) and issubclass(value, BaseException)
        shared = module != "__main__" and module.partition(".")[0] in sys.stdlib_module_names
        if not shared or getattr(sys.modules.get(module), name, None) is not value:
            return []
        return ["named", module, name] if raised or not self._host.trusts or BUILTIN_TYPES.get(name) is value else []

    def _class(self, kind: type) -> list[Any]:
        bases = [self._name(base) or self._class(base) for base in kind.__bases__]
        value = next((base.__name__ for base in VALUES if issubclass(kind, base)), "")
        return ["class", self._handle(kind), kind.__name__, bases, sorted(specials(kind)), value]

    def _error(self, error: BaseException, kept: Kept) -> list[Any]:
        kind = type(error)
        if type(kind) is RemoteType and HANDLE in vars(error):
            return ["yours", vars(error)[HANDLE][1]]
        args = [one if one is None or type(one) in BARE else repr(one) for one in error.args]
        own = self._name(kind)
        return ["error", own or self._class(kind), None if own else self._handle(error), self._encoded(args, kept)]

    def _decoded(self, data: Any, kept: Kept) -> Any:
        if not isinstance(data, list):
            if data is None or type(data) in BARE:
                return data
            raise ValueError("no value")
        tag, *rest = data
        if tag in BY_NAME and BY_NAME[tag] in MUTABLE:
            kept.keep(container := BY_NAME[tag]())
            fill(container, [self._decoded(item, kept) for item in rest])
            return container
        if tag == "record":
            kind = self.shared[rest[0]]
            kept.keep(record := kind.__new__(kind))
            fill(record, [self._decoded(item, kept) for item in rest[1:]])
            return record
        if tag == "member":
            return self.shared[rest[0]][rest[1]]  # type: ignore[index]  an enumeration
        if tag in BY_NAME:
            return PLAIN[BY_NAME[tag]][1](*(self._decoded(item, kept) for item in rest))
        if tag == "int":
            return int(rest[0], 16)
        if tag == "same":
            return kept[rest[0]]
        if tag == "yours":
            return self._exported[rest[0]]
        if tag == "method":
            return Method(rest[0])
        if tag == "object":
            return self._object(*rest[:2], *(self._decoded(item, kept) for item in rest[2:]))
        if tag == "error":
            return self._raised(*rest[:2], self._decoded(rest[2], kept))
        return self._type(data)

    def _type(self, data: list[Any]) -> Any:
        """Return what a name or a description of a class stands for."""
        tag, *rest = data
        if tag == "class":
            return self._local.get(rest[0]) or self._local_class(*rest)
        if tag == "shared":
            return self.shared[rest[0]]
        _, module, name = data
        if self._host.trusts:
            return getattr(importlib.import_module(module), name)
        found = BUILTIN_TYPES[name] if module == "builtins" else getattr(sys.modules.get(module), name, Exception)
        if not isinstance(found, type) or (module != "builtins" and not issubclass(found, Exception)):
            raise ValueError(f"{module}.{name}")
        return found

    def _local_class(self, handle: int, name: str, bases: list[Any], specials: list[str], value: str) -> RemoteType:
        known = [base for base in map(self._type, bases) if type(base) is RemoteType or issubclass(base, BaseException)]
        if value and not any(issubclass(base, BUILTIN_TYPES[value]) for base in known):
            known.append(BUILTIN_TYPES[value])
        space: dict[str, Any] = {name: special(name) for name in USES.intersection(specials)}
        space |= {HANDLE: (self, handle), OPERATORS_THERE: OPERATORS.intersection(specials), "__module__": "answer"}
        space |= {"__getattr__": attribute, "__setattr__": set_attribute}
        try:
            made = RemoteType(name, tuple(known), space)
        except TypeError:  # bases whose order or layout only fits there
            made = RemoteType(name, tuple(known[:1]), space)
        if self._host.trusts:
            judge(made)
        self._local[handle] = made
        return made

    def _object(self, handle: int, kind: list[Any], *value: Any) -> Any:
        if handle not in self._local:
            local = self._type(kind)
            made = local.__new__(local, *value)
            vars(made)[HANDLE] = (self, handle)
            self._local[handle] = made
        return self._local[handle]

    def _raised(self, kind: list[Any], handle: int | None, args: list[Any]) -> BaseException:
        local = self._type(kind)
        made: BaseException = local.__new__(local, *args)
        vars(made)[HANDLE] = (self, handle)
        return made
