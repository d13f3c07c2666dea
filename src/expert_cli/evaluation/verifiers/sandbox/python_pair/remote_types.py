"""Classes of another process, as local ones whose objects ask there for everything.

Operators, with which an object could call itself equal to anything, are asked of `judge`d classes alone, and how
one compares only with another object of the answer's: a method that returns its object would equal what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from expert_cli.evaluation.verifiers.sandbox.python_pair.plain_values import VALUES

HANDLE, OPERATORS_THERE = "\0handle", "\0operators"
"""Keys, which no program can write as names, of what a local object knows: (peer, handle); the operators of its class."""
_SIDES = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor"
_ALONE = "eq ne lt le gt ge hash contains bool neg pos invert abs round trunc floor ceil int float index complex"
COMPARISONS = frozenset(f"__{name}__" for name in _ALONE.split()[:6])
_ALL = (*_ALONE.split(), *(side + name for side in ("", "r", "i") for name in _SIDES.split()))
OPERATORS = frozenset(f"__{name}__" for name in _ALL)
_USES = "call len iter next reversed getitem setitem delitem enter exit str repr"
USES = frozenset(f"__{name}__" for name in _USES.split())
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
        return _asked(cls, "__call__", args, named)

    def __getattr__(cls, name: str) -> Any:
        """Return what the class holds."""
        return attribute(cls, name)

    def __iter__(cls) -> Any:
        """Go through an enumeration."""
        return _asked(cls, "__iter__")

    def __len__(cls) -> int:
        """Count an enumeration."""
        return int(_asked(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        """Return a member of an enumeration."""
        return _asked(cls, "__getitem__", (key,))

    def __bool__(cls) -> bool:
        """Every class is true."""
        return True


def _asked(thing: Any, name: str, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
    peer, handle = vars(thing)[HANDLE]
    return peer.ask(handle, name, args, named or {})


def attribute(thing: Any, name: str) -> Any:
    """Ask for an attribute, of an object or a class."""
    if name.startswith("__") and name not in _READABLE:
        raise AttributeError(name)
    value = _asked(thing, "getattr", (name,))
    if type(value) is not Method:
        return value
    return lambda *args, **named: _asked(thing, "method", (name, *args), named)


def set_attribute(thing: Any, name: str, value: Any) -> None:
    """Change an attribute there."""
    if name.startswith("__"):
        object.__setattr__(thing, name, value)
    else:
        _asked(thing, "setattr", (name, value))


def special(name: str) -> Callable[..., Any]:
    """Return the method that asks for an operator or a use."""
    return lambda self, *args, **named: _asked(self, name, args, named)


def comparison(name: str) -> Callable[[Any, Any], Any]:
    """Return the method that asks how two of the answer's objects compare; with anything else it is none of its matter."""
    return lambda self, other: _asked(self, name, (other,)) if type(type(other)) is RemoteType else NotImplemented


class Method(str):
    """The name of a method, for the method."""

    __slots__ = ()


def judge(kind: RemoteType) -> None:
    """Let the operators of a class be asked there from now on."""
    there = vars(kind)[OPERATORS_THERE]
    for name in there:
        setattr(kind, name, comparison(name) if name in COMPARISONS else special(name))
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
