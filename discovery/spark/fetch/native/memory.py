"""Words of memory and C functions by their address, inside compiled code.

Functions that are captured as globals would keep the compiled code from being cached on disk; an address that comes
as an argument does not.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _HALF, _WORD = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_Generate = Callable[[Any, Sequence[Any]], Any]
"""Writes instructions with a builder, from the values of the arguments; returns a value or None."""


def _instruction(generate: _Generate, arguments: int, *, returns: bool) -> Any:
    """Make a function of compiled code from the instructions it stands for."""

    def code(context: Any, builder: Any, _signature: Any, values: Sequence[Any]) -> Any:
        made = generate(builder, values)
        return made if returns else context.get_dummy_value()

    signature = (types.int64 if returns else types.void)(*[types.int64] * arguments)
    # numba counts the parameters of what it is given.
    match arguments:
        case 1:
            return intrinsic(lambda _context, a: (signature, code))  # noqa: ARG005
        case 2:
            return intrinsic(lambda _context, a, b: (signature, code))  # noqa: ARG005
        case 3:
            return intrinsic(lambda _context, a, b, c: (signature, code))  # noqa: ARG005
        case _:
            return intrinsic(lambda _context, a, b, c, d, e, f: (signature, code))  # noqa: ARG005


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _load(kind: Any) -> Any:
    def generate(builder: Any, values: Sequence[Any]) -> Any:
        loaded = builder.load(_pointer(builder, values[0], kind), align=1)
        return loaded if kind is _WORD else builder.sext(loaded, _WORD)

    return _instruction(generate, 1, returns=True)


def _store(kind: Any) -> Any:
    def generate(builder: Any, values: Sequence[Any]) -> Any:
        kept = values[1] if kind is _WORD else builder.trunc(values[1], kind)
        builder.store(kept, _pointer(builder, values[0], kind), align=1)

    return _instruction(generate, 2, returns=False)


def _copy(builder: Any, values: Sequence[Any]) -> None:
    target, source, count = values
    cgutils.raw_memcpy(builder, _pointer(builder, target, _BYTE), _pointer(builder, source, _BYTE), count, 1)


def _prefetch(builder: Any, values: Sequence[Any]) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _HALF, _HALF, _HALF])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [_pointer(builder, values[0], _BYTE), _HALF(0), _HALF(3), _HALF(1)])


def _call(arguments: int, *, returns: bool) -> Any:
    def generate(builder: Any, values: Sequence[Any]) -> Any:
        kind = ir.FunctionType(_WORD if returns else ir.VoidType(), [_WORD] * arguments)
        return builder.call(_pointer(builder, values[0], kind), values[1:])

    return _instruction(generate, arguments + 1, returns=returns)


load8, load32, load64 = _load(_BYTE), _load(_HALF), _load(_WORD)
"""Read from an address, extended by its sign."""
store8, store32, store64 = _store(_BYTE), _store(_HALF), _store(_WORD)
"""Write a value, cut to its width, to an address."""
copy = _instruction(_copy, 3, returns=False)
"""`copy(target, source, count)`: the two do not overlap."""
prefetch = _instruction(_prefetch, 1, returns=False)
"""Ask for a line of memory ahead of its use."""
call1 = _call(1, returns=False)
"""`call1(function, one)`: call a C function that returns nothing."""
ask1, ask2, ask5 = (_call(count, returns=True) for count in (1, 2, 5))
"""Call a C function of so many words that returns one."""
