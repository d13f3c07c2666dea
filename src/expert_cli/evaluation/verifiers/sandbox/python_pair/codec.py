"""What goes from one process to the other, as JSON: values as copies, all else as what the other side asks for by a handle."""

from __future__ import annotations

import importlib
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from expert_cli.evaluation.verifiers.sandbox.python_pair.operators import GIVEN, HANDLE, MADE, NUMBER, ORIGIN
from expert_cli.evaluation.verifiers.sandbox.python_pair.plain_values import (
    BARE,
    BUILTIN_TYPES,
    BY_NAME,
    MUTABLE,
    PLAIN,
    VALUES,
    contents,
    fill,
)
from expert_cli.evaluation.verifiers.sandbox.python_pair.remote_types import (
    OPERATORS,
    OPERATORS_THERE,
    Method,
    RemoteType,
    attribute,
    judge,
    set_attribute,
    specials,
    uses,
)


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


class Codec:
    """Writes and reads for one side. `shared`: classes that both have, whose objects go as copies.

    trusts: whether the other side may name anything of the library, and its classes are asked for every operator.
    """

    def __init__(self, first: Any, *, trusts: bool) -> None:
        """Start with one object that the other side may ask, under handle 0."""
        self.trusts = trusts
        self._exported: list[Any] = [first]
        self._handles: dict[int, int] = {}
        self.objects: dict[int, Any] = {}
        self._classes: dict[int, RemoteType] = {}
        self.shared: dict[str, Any] = {}

    def _encoded(self, value: Any, kept: Kept) -> Any:
        kind = type(value)
        if isinstance(value, types.TracebackType | None) or kind in BARE:  # an error's way there concerns nobody here
            value = None if isinstance(value, types.TracebackType) else value
            return ["int", hex(value)] if kind is int and value.bit_length() > 63 else value
        if kind in MUTABLE:
            if id(value) in kept.places:
                return ["same", kept.places[id(value)]]
            kept.keep(value)
            parts = [*([value.default_factory] if kind is defaultdict else []), *contents(value)]
            return [kind.__name__, *(self._encoded(item, kept) for item in parts)]
        if self.shared.get(kind.__name__) is kind and not isinstance(value, BaseException):
            return self._record(value, kept)
        if kind in PLAIN:
            return [kind.__name__, *(self._encoded(item, kept) for item in PLAIN[kind][0](value))]
        return self._aside(value, kept)

    def _aside(self, value: Any, kept: Kept) -> Any:
        """Encode what does not go as a copy."""
        kind = type(value)
        if kind is Method:
            return ["method", str(value)]
        if kind is RemoteType or type(kind) is RemoteType:
            return ["yours", vars(value)[HANDLE][1]]
        if isinstance(value, BaseException):
            return self._error(value, kept)
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and (name := self._name(value)):
            return name
        if isinstance(value, type):
            return ["shared", value.__name__] if self._is_shared(value) else self._class(value)
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

    def _name(self, value: type | types.FunctionType | types.BuiltinFunctionType) -> list[str]:
        """The name of what the other side has, too; [] for none."""
        module, name = value.__module__ or "", value.__qualname__
        raised = isinstance(value, type) and issubclass(value, BaseException)
        shared = module != "__main__" and module.partition(".")[0] in sys.stdlib_module_names
        if not shared or getattr(sys.modules.get(module), name, None) is not value:
            return []
        return ["named", module, name] if raised or not self.trusts or BUILTIN_TYPES.get(name) is value else []

    def _class(self, kind: type) -> list[Any]:
        bases = [
            ["shared", base.__name__]
            if self._is_shared(base) and issubclass(base, BaseException)
            else self._name(base) or self._class(base)
            for base in kind.__bases__
        ]
        value = next((base.__name__ for base in VALUES if issubclass(kind, base)), "")
        return ["class", self._handle(kind), kind.__name__, bases, sorted(specials(kind)), value]

    def _error(self, error: BaseException, kept: Kept) -> list[Any]:
        kind = type(error)
        if type(kind) is RemoteType and HANDLE in vars(error):
            return ["yours", vars(error)[HANDLE][1]]
        args = [self._argument(one, kept) for one in error.args]
        if self._is_shared(kind):
            return [
                "raised",
                kind.__name__,
                args,
                *([name, self._argument(one, kept)] for name, one in contents(error)),
            ]
        own = self._name(kind)
        return ["error", own or self._class(kind), None if own else self._handle(error), args]

    def _is_shared(self, kind: type) -> bool:
        return self.shared.get(kind.__name__) is kind

    def _argument(self, value: Any, kept: Kept) -> Any:
        """Encode what an error was raised with: of a group, the errors in it."""
        if isinstance(value, list | tuple) and value and all(isinstance(one, Exception) for one in value):
            return ["tuple", *(self._error(one, kept) for one in value)]
        return self._encoded(value if value is None or type(value) in BARE else repr(value), kept)

    def _decoded(self, data: Any, kept: Kept) -> Any:
        if not isinstance(data, list):
            if data is None or type(data) in BARE:
                return data
            raise ValueError("no value")
        tag, *rest = data
        if tag in _ASIDE:
            return _ASIDE[tag](self, rest, kept)
        kind: Any = self.shared[rest.pop(0)] if tag == "record" else BY_NAME[tag]
        if kind in PLAIN:
            return PLAIN[kind][1](*(self._decoded(item, kept) for item in rest))
        kept.keep(container := kind.__new__(kind))
        if kind is defaultdict:
            container.default_factory = self._decoded(rest.pop(0), kept)
        fill(container, [self._decoded(item, kept) for item in rest])
        return container

    def _type(self, data: list[Any]) -> Any:
        """Return what a name or a description of a class stands for."""
        tag, *rest = data
        if tag == "class":
            return self._classes.get(rest[0]) or self._local_class(*rest)
        if tag == "shared":
            return self.shared[rest[0]]
        _, module, name = data
        if self.trusts:
            return getattr(importlib.import_module(module), name)
        found = BUILTIN_TYPES[name] if module == "builtins" else getattr(sys.modules.get(module), name, Exception)
        if not isinstance(found, type) or (module != "builtins" and not issubclass(found, Exception)):
            raise ValueError(f"{module}.{name}")
        # Errors of unittest skip a test or end it early, others of the tests' modules are theirs to raise.
        return Exception if found.__module__.partition(".")[0] in ("unittest", "__main__") else found

    def _local_class(self, handle: int, name: str, bases: list[Any], specials: list[str], value: str) -> RemoteType:
        known = [base for base in map(self._type, bases) if type(base) is RemoteType or issubclass(base, BaseException)]
        if value and not any(issubclass(base, BUILTIN_TYPES[value]) for base in known):
            known.append(BUILTIN_TYPES[value])
        space: dict[str, Any] = {**uses({*specials}, trusts=self.trusts)}
        space |= {HANDLE: (self, handle), OPERATORS_THERE: OPERATORS.intersection(specials), "__module__": "answer"}
        space |= {"__getattr__": attribute, "__setattr__": set_attribute}
        try:
            made = RemoteType(name, tuple(known), space)
        except TypeError:  # bases whose order or layout only fits there
            made = RemoteType(name, tuple(known[:1]), space)
        if self.trusts:
            judge(made)
        self._classes[handle] = made
        return made

    def _object(self, handle: int, kind: list[Any], *value: Any) -> Any:
        if handle not in self.objects:
            local = self._type(kind)
            made = local.__new__(local, *value)
            vars(made).update({HANDLE: (self, handle), ORIGIN: GIVEN, NUMBER: len(self.objects)})
            self.objects[handle] = made
        elif vars(self.objects[handle])[ORIGIN] == MADE:
            vars(self.objects[handle])[ORIGIN] = GIVEN
        return self.objects[handle]

    def _raised(self, kind: list[Any], handle: int | None, args: list[Any]) -> BaseException:
        local = self._type(kind)
        made = _new_error(local, args)
        with suppress(TypeError):  # a StopIteration without its `value` would crash `yield from`
            plain: Any = next(base for base in type(made).__mro__ if base.__module__ == "builtins")
            plain.__init__(made, *args)
        vars(made)[HANDLE] = (self, handle)
        return made

    def _raised_shared(self, name: str, args: list[Any], attributes: list[Any]) -> BaseException:
        made = _new_error(self.shared[name], args)
        fill(made, attributes)
        return made


def _new_error(kind: Any, args: list[Any]) -> BaseException:
    """Make an error, or, where it cannot be made of these arguments, one that says so."""
    try:
        made: BaseException = kind.__new__(kind, *args)
    except (TypeError, ValueError):
        return Exception(f"{kind.__name__}: {args}"[:400])
    return made


_ASIDE: Mapping[str, Callable[[Codec, list[Any], Kept], Any]] = {
    "int": lambda _, rest, __: int(rest[0], 16),
    "same": lambda _, rest, kept: kept[rest[0]],
    "yours": lambda side, rest, _: side._exported[rest[0]],
    "method": lambda _, rest, __: Method(rest[0]),
    "member": lambda side, rest, _: side.shared[rest[0]][rest[1]],
    "object": lambda side, rest, kept: side._object(*rest[:2], *(side._decoded(item, kept) for item in rest[2:])),
    "error": lambda side, rest, kept: side._raised(rest[0], rest[1], [side._decoded(one, kept) for one in rest[2]]),
    "raised": lambda side, rest, kept: side._raised_shared(
        rest[0],
        [side._decoded(one, kept) for one in rest[1]],
        [(name, side._decoded(one, kept)) for name, one in rest[2:]],
    ),
    "class": lambda side, rest, _: side._type(["class", *rest]),
    "shared": lambda side, rest, _: side._type(["shared", *rest]),
    "named": lambda side, rest, _: side._type(["named", *rest]),
}
"""What is no copy, by the tag that it goes under."""
