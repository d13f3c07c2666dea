"""Classes of another process, as local ones whose objects ask there for everything.

Operators, with which an object could call itself equal to anything, are asked of `judge`d classes alone, and how
one compares only with another object of the answer's: a method that returns its object would equal what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from expert_cli.evaluation.verifiers.sandbox.python_pair.operators import (
    ARITHMETIC,
    CONTENTS,
    CONVERSIONS,
    HANDLE,
    MADE,
    NUMBER,
    ORIGIN,
    SIGNS,
    asked,
    counted,
    guarded,
)
from expert_cli.evaluation.verifiers.sandbox.python_pair.plain_values import VALUES

OPERATORS_THERE = "\0operators"
"""Key of the operators of a local class."""
COMPARISONS = frozenset(f"__{name}__" for name in ["eq", "ne", "lt", "le", "gt", "ge"])
OPERATORS = COMPARISONS | ARITHMETIC | SIGNS | CONVERSIONS | {"__hash__", "__contains__"}
USES = CONTENTS | {f"__{name}__" for name in ["call", "setitem", "delitem", "enter", "exit", "str", "repr"]}
_READABLE = frozenset({"__name__", "__doc__", "__qualname__"})


class RemoteType(type):
    """A class of the other side."""

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> RemoteType:
        """Make the local class of a handle."""
        if HANDLE not in space:
            raise TypeError("no class can be derived here from one of the answer's")
        return super().__new__(cls, name, bases, space)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        """Make an object, there."""
        before = len(vars(cls)[HANDLE][0].objects)
        made = asked(cls, "__call__", *args, **named)
        if type(type(made)) is RemoteType and vars(made).get(NUMBER, -1) >= before:
            vars(made)[ORIGIN] = MADE
        return made

    def __getattr__(cls, name: str) -> Any:
        """Return what the class holds."""
        return attribute(cls, name)

    def __iter__(cls) -> Iterator[Any]:
        """Go through an enumeration."""
        return counted(len(cls), asked(cls, "__iter__"))

    def __len__(cls) -> int:
        """Count an enumeration."""
        return int(asked(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        """Return a member of an enumeration."""
        return asked(cls, "__getitem__", key)

    def __bool__(cls) -> bool:
        """Every class is true."""
        return True


def attribute(thing: Any, name: str) -> Any:
    """Ask for an attribute, of an object or a class."""
    if name.startswith("__") and name not in _READABLE:
        raise AttributeError(name)
    value = asked(thing, "getattr", name)
    if type(value) is not Method:
        return value
    return lambda *args, **named: asked(thing, "method", name, *args, **named)


def set_attribute(thing: Any, name: str, value: Any) -> None:
    """Change an attribute there."""
    if name.startswith("__"):
        object.__setattr__(thing, name, value)
    else:
        asked(thing, "setattr", name, value)


def uses(there: set[str], *, trusts: bool) -> dict[str, Callable[..., Any]]:
    """Return the methods of a local class. there: what its class has. trusts: nothing is guarded."""
    if not trusts and "__len__" in there and "__getitem__" in there:
        names = (there & USES) | {"__iter__", "__reversed__"}
    else:
        names = there & USES
    return {name: special(name) if trusts else guarded(name, there) for name in names}


def special(name: str) -> Callable[..., Any]:
    """Return the method that asks for an operator or a use."""
    return lambda self, *args, **named: asked(self, name, *args, **named)


def comparison(name: str) -> Callable[[Any, Any], Any]:
    """Return the method that asks how two of the answer's objects compare; with anything else it is none of its matter."""
    return lambda self, other: asked(self, name, other) if type(type(other)) is RemoteType else NotImplemented


class Method(str):
    """The name of a method, for the method."""

    __slots__ = ()


def judge(kind: RemoteType) -> None:
    """Let the operators of a class be asked there from now on."""
    there, trusts = vars(kind)[OPERATORS_THERE], vars(kind)[HANDLE][0].trusts
    for name in there:
        other = special(name) if trusts else guarded(name, there)
        setattr(kind, name, comparison(name) if name in COMPARISONS else other)
    if "__eq__" in there and "__hash__" not in there:
        kind.__hash__ = None  # type: ignore[assignment]


def specials(kind: type) -> set[str]:
    """The operators and uses that a class has of its own: not from object, an exception or a value that is copied."""
    found = set[str]()
    for name in OPERATORS | USES:
        owner = next((one for one in kind.__mro__ if name in vars(one)), object)
        plain = owner in (object, *VALUES) or (owner.__module__ == "builtins" and issubclass(owner, BaseException))
        if not plain and callable(getattr(kind, name)):
            found.add(name)
    return found
