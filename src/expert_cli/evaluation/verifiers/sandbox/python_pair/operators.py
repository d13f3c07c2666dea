"""How operators of the answer's objects are asked in the tests' process, so that none decides by itself what is compared.

An object knows its origin: the tests MADE it by calling a class, a call or an attribute has GIVEN it, or it was COMPUTED from
one and a plain value. A computed one could be the difference to what is expected: it is not asked what number it is, how long
it is or what it holds. Whether a given one contains a value, its items decide; there are as many of those as it is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

HANDLE, ORIGIN, LENGTH, NUMBER = "\0handle", "\0origin", "\0length", "\0number"
"""Keys, which no program can write as names, of what a local object knows: (peer, handle); where it comes from; (changes, its
length), as last told; how many came before it."""
MADE, GIVEN, COMPUTED = "made", "given", "computed"
_SIDES = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor"
_BUILDERS = ("add", "mul", "matmul", "pow", "lshift", "or")
_BUILDING = frozenset(f"__{side}{name}__" for side in ("", "r", "i") for name in _BUILDERS)
"""What makes of one object and a plain value another object, and is nobody's way to compare the two."""
ARITHMETIC = frozenset(f"__{side}{name}__" for side in ("", "r", "i") for name in _SIDES.split())
SIGNS = frozenset({"__neg__", "__pos__", "__invert__"})
CONVERSIONS = frozenset(
    f"__{name}__" for name in ["bool", "abs", "round", "trunc", "floor", "ceil", "int", "float", "index", "complex"]
)
CONTENTS = frozenset(f"__{name}__" for name in ["len", "iter", "next", "reversed", "getitem"])
MAX_ITEMS = 100_000
"""Items through which a value is looked for."""


def asked(thing: Any, name: str, /, *args: Any, **named: Any) -> Any:
    """Ask for an operator, a use, an attribute."""
    peer, handle = vars(thing)[HANDLE]
    return peer.ask(handle, name, args, named)


def origin(thing: Any) -> str:
    """Return where an object comes from, "" for a plain value."""
    return str(vars(thing).get(ORIGIN, GIVEN)) if HANDLE in getattr(thing, "__dict__", ()) else ""


def guarded(name: str, there: set[str]) -> Callable[..., Any]:
    """Return the method that asks for an operator or a use. there: all of them that the class has."""
    if name in ARITHMETIC or name in SIGNS:
        return lambda self, *others: _computed(self, name, others)
    if name == "__contains__":
        return _contains
    if name == "__len__":
        return _length
    if name in ("__iter__", "__reversed__") and "__len__" in there:
        return lambda self: counted(len(self), _items(self, name, there))
    if name in CONVERSIONS or name in CONTENTS:
        return lambda self, *args: asked(_told(self), name, *args)
    return lambda self, *args, **named: asked(self, name, *args, **named)


def _told(thing: Any) -> Any:
    if origin(thing) == COMPUTED:
        raise TypeError("what came of arithmetic with a plain value is not asked for its value")
    return thing


def _computed(thing: Any, name: str, others: tuple[Any, ...]) -> Any:
    """Ask for arithmetic: with a plain value, and on what came of that, it gives an object of the answer's."""
    operands = [thing, *others]
    origins = {origin(one) for one in operands}
    before = len(vars(thing)[HANDLE][0].objects)
    result = asked(thing, name, *others)
    if result is NotImplemented:
        return result
    for part in result if type(result) is tuple else (result,):
        if not origin(part):
            if origins & {"", COMPUTED}:
                raise TypeError("arithmetic of an object with a plain value gives a plain value, which is not taken")
        elif COMPUTED in origins or ("" in origins and (GIVEN in origins or name not in _BUILDING)):
            part.__dict__[ORIGIN] = COMPUTED
        elif GIVEN not in origins and (vars(part).get(NUMBER, -1) >= before or any(part is one for one in operands)):
            part.__dict__[ORIGIN] = MADE
    return result


def _contains(thing: Any, item: Any) -> bool:
    if origin(thing) == MADE:
        return bool(asked(thing, "__contains__", item))
    for number, one in enumerate(thing):
        if one is item or one == item:
            return True
        if number == MAX_ITEMS:
            raise TypeError(f"it has more than {MAX_ITEMS} items to look through")
    return False


def _length(thing: Any) -> int:
    length, changes = asked(_told(thing), "__len__"), vars(thing)[HANDLE][0].changes
    if vars(thing).get(LENGTH, (changes, length)) != (changes, length) and vars(thing)[LENGTH][0] == changes:
        raise TypeError("its length is another one each time")
    vars(thing)[LENGTH] = changes, length
    return int(length)


def _items(thing: Any, name: str, there: set[str]) -> Iterator[Any]:
    if name in there:
        yield from asked(thing, name)
        return
    index = 0 if name == "__iter__" else len(thing) - 1
    while index >= 0:
        try:
            item = thing[index]
        except IndexError:
            return
        yield item
        index += 1 if name == "__iter__" else -1


def counted(length: int, items: Iterator[Any]) -> Iterator[Any]:
    """Go through items that are as many as was told. Raises TypeError where they are not."""
    number = 0
    for number, item in enumerate(items, 1):
        if number > length:
            break
        yield item
    if number != length:
        raise TypeError(f"its length is {length}, and it has {'more' if number > length else number} items")
