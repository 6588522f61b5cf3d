"""Whether an object has what a Protocol of this package asks: methods, attributes, and how methods are called.

The kernel asks this of each part that a hook made, before anything opens: a part without a method would otherwise serve
until the first request that needs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Protocol

_NOTHING = object()


def problems(part: Any, protocol: type[Any]) -> list[str]:
    """Returns what ``part`` lacks, one line a member, by name; empty if it can be called as the Protocol says.

    A method that is inherited from the Protocol itself counts as missing: its body is empty. An attribute counts as
    there if the object has it, or a class of it declares it. Types of arguments are not looked at.

    :param part: an object; or a class, of which methods are checked and attributes are not: they come with ``__init__``
    """
    lines: list[str] = []
    for name, member in _members(protocol):
        if inspect.isfunction(member):
            lines += _method_problems(part, name, member)
        elif not isinstance(part, type) and not _has_attribute(part, name):
            lines.append(f"no {name}")
    return lines


def _members(protocol: type[Any]) -> Iterator[tuple[str, Any]]:
    """(name, function, or something else for an attribute), in the order of the Protocol's text."""
    seen: set[str] = set()
    for kind in protocol.__mro__:
        if kind in (object, Protocol) or not getattr(kind, "_is_protocol", False):
            continue
        for name in (*inspect.get_annotations(kind), *kind.__dict__):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, kind.__dict__.get(name)


def _has_attribute(part: Any, name: str) -> bool:
    if _static(part, name) is not _NOTHING:
        return True
    classes = [kind for kind in type(part).__mro__ if not getattr(kind, "_is_protocol", False)]
    if any(name in inspect.get_annotations(kind) for kind in classes):
        return True
    if not hasattr(type(part), "__getattr__"):
        return False
    try:
        getattr(part, name)  # it hands on what another has
    except AttributeError:
        return False
    except Exception:  # a property that has nothing to say before the start
        return True
    return True


def _static(part: Any, name: str) -> Any:
    """The member without running a property, which may raise before a start; what a Protocol brings doesn't count."""
    member = inspect.getattr_static(part, name, _NOTHING)
    kinds = part.__mro__ if isinstance(part, type) else type(part).__mro__
    for kind in kinds:
        if name in kind.__dict__:
            stub = getattr(kind, "_is_protocol", False) and member is kind.__dict__[name]
            return _NOTHING if stub else member
    return member


def _method_problems(part: Any, name: str, wanted: Any) -> Iterator[str]:
    signature = inspect.signature(wanted)
    shown = f"{name}{_shown(signature)}"
    if _static(part, name) is _NOTHING and not hasattr(type(part), "__getattr__"):
        yield f"no {shown}"
        return
    method = getattr(part, name, None)
    if not callable(method):
        yield f"no {shown}, but {name} is {method!r}" if method is not None else f"no {shown}"
        return
    try:
        has = inspect.signature(method)
    except (TypeError, ValueError):
        return  # built in, or made by something that tells nothing
    if not _can_be_called(has, signature, unbound=isinstance(part, type) and not _is_bound(part, name)):
        yield f"{name}{has}: it is called as {shown}"
    elif inspect.iscoroutinefunction(wanted) and not _is_awaited(method, has):
        yield f"{name} is awaited, and is no async def"
    elif inspect.iscoroutinefunction(method) and not inspect.iscoroutinefunction(wanted):
        yield f"{name} is an async def, and is not awaited"


def _is_bound(part: type[Any], name: str) -> bool:
    return isinstance(inspect.getattr_static(part, name), (staticmethod, classmethod))


def _is_awaited(method: Any, has: inspect.Signature) -> bool:
    if inspect.iscoroutinefunction(method):
        return True
    said = str(has.return_annotation)
    return any(word in said for word in ("Awaitable", "Coroutine", "Future", "Task", "Completion"))


def _can_be_called(has: inspect.Signature, signature: inspect.Signature, *, unbound: bool) -> bool:
    """Whether it can be called with all arguments, and with the required ones alone. Arguments before the star are
    given by place, others by name.
    """
    parameters = [*signature.parameters.values()][1:]  # without self
    for given in (parameters, [param for param in parameters if param.default is param.empty]):
        by_place = [param for param in given if param.kind is not param.KEYWORD_ONLY]
        by_name = {param.name: param for param in given if param.kind is param.KEYWORD_ONLY}
        try:
            has.bind(*([None] if unbound else []), *by_place, **by_name)
        except TypeError:
            return False
    return True


def _shown(signature: inspect.Signature) -> str:
    """The arguments as a caller gives them."""
    names = []
    for param in [*signature.parameters.values()][1:]:
        if param.kind is param.KEYWORD_ONLY:
            names.append(f"{param.name}=…")
        else:
            names.append(param.name if param.default is param.empty else f"{param.name}?")
    return f"({', '.join(names)})"
