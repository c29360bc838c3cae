"""What users bring themselves: attributes of modules of their own."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cpdispatch.errors import UsageError, in_a_line
from cpdispatch.parameters import known, pairs

FAILS = (Exception, SystemExit)
"""What a user's code raises where it fails: a call of sys.exit does not end the command."""
_PACKAGE = f"{Path(__file__).parent}{os.sep}"
_LIBRARIES = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
"""Where files are that no user has written."""


def attribute(module: str, name: str, what: str) -> Any:
    """An attribute of a user's module, which may be in the current folder.

    Parameters
    ----------
    what : str
        What the user calls it, for messages.

    Raises
    ------
    UsageError
        When the module cannot be imported, or has no such attribute.
    """
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except FAILS as error:
        # Anything may be wrong in a file of the user's.
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        meant, _, last = module.rpartition(".")
        last = name if last == "py" else last  # the name of the file
        hint = f"; is {meant}:{last} meant?" if meant and not kind else ""
        raise UsageError(f"{what}: {module} cannot be imported: {kind}{error}{hint}") from error
    finally:
        with suppress(ValueError):  # the module may have changed the path
            sys.path.remove(here)
    if not name or not hasattr(found, name):
        raise UsageError(f"{what}: {module} has no attribute {name!r}")
    return getattr(found, name)


def is_name(text: str) -> bool:
    """Whether a text after a module's name is that of an attribute, with parameters or without."""
    return text.partition(":")[0].isidentifier()


def made(spec: str, method: str, what: str, seed: int, name: str = "") -> Any:
    """The object that is meant: a copy of it, or what a class or a function makes.

    So nothing that it remembers of one run is there in the next.

    Parameters
    ----------
    spec : str
        ``module:attribute``, or ``module:attribute:parameter=value,...``. A class or a function is
        called with these parameters, and with the seed if it has a parameter ``seed`` that is not
        among them. A value that is written as in JSON is taken as such (``3``, ``0.5``, ``true``);
        any other is a text.
    method : str
        The method that tells the object from what makes it.
    what : str
        What the user calls it, for messages.
    seed : int
        Of what it draws at random.
    name : str
        What it is called if it has no name of its own, or if there are parameters: results of two
        settings are told apart by it.

    Raises
    ------
    UsageError
        When it cannot be imported, made or copied, or has no such method or parameter, or its name
        is of no use.
    """
    module, _, rest = spec.partition(":")
    which, _, parameters = rest.partition(":")
    given = {key: _value(text) for key, text in pairs(what, parameters).items()}
    found = attribute(module, which, what)
    if isinstance(found, type) or not hasattr(found, method):
        if not callable(found):
            raise UsageError(f"{what}: it has no method {method}")
        arguments = _arguments(found, given, what, seed)
        try:
            found = found(**arguments)
        except FAILS as error:
            raise UsageError(
                f"{what}: it cannot be made: {type(error).__name__}: {error}"
            ) from error
    else:
        if given:
            raise UsageError(f"{what}: an object takes no parameters; name what makes it")
        try:
            found = copy.deepcopy(found)
        except FAILS as error:
            raise UsageError(
                f"{what}: it cannot be copied: {type(error).__name__}: {error}; name its class, "
                "or a function that makes it"
            ) from error
    if not callable(getattr(found, method, None)):
        raise UsageError(f"{what}: it has no method {method}")
    called = _name_of(found, what)
    if name and (called is None or given):
        try:
            found.name = called = name
        except AttributeError as error:
            has = "no name" if called is None else f"the name {called!r} for all parameters"
            raise UsageError(f"{what}: it has {has}, and cannot be given one") from error
    if called is not None and not _is_name(called):
        raise UsageError(f"{what}: its name is a text of one line, not empty (found {called!r})")
    return found


def _name_of(found: Any, what: str) -> Any:
    """What an object is called; None where it has no name."""
    try:
        return getattr(found, "name", None)
    except FAILS as error:
        raise UsageError(raised(f"{what}: its name", error)) from error


def _is_name(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and text.isprintable()


def checked(given: Any, what: str, *methods: str) -> Any:
    """An object of the user's, as it is.

    Parameters
    ----------
    what : str
        What it is taken for, for messages.

    Raises
    ------
    UsageError
        When it is a class, or lacks its name or one of the methods.
    """
    kind = given if isinstance(given, type) else type(given)
    there = given is kind or _is_name(_name_of(given, what))
    if given is kind or not there or not all(callable(getattr(given, m, None)) for m in methods):
        found = f"the class {kind.__name__}" if given is kind else kind.__name__
        raise UsageError(
            f"{what}: a name, or an object with a name and {' and '.join(methods)}(), is needed "
            f"(found {found})"
        )
    return given


def raised(what: str, error: BaseException) -> str:
    """That something of the user's raised an error, which, and in which line of the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    own = [frame for frame in foreign if not frame.filename.startswith(_LIBRARIES)] or foreign
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    kind, message = type(error).__name__, in_a_line(error)
    return f"{what} raised {kind}{f': {message}' if message != kind else ''}{place}"


def _value(text: str) -> Any:
    """What is written as in JSON as that, any other text as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text


def _arguments(maker: Any, given: Mapping[str, Any], what: str, seed: int) -> dict[str, Any]:
    """What a class or a function is called with."""
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # a callable that says nothing of its parameters
        return dict(given)
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        for key in given:
            known(what, key, parameters)
    return {"seed": seed, **given} if "seed" in parameters else dict(given)


def is_ours(value: object) -> bool:
    """Whether it is of a class of the package, and not of a user's own."""
    return type(value).__module__.partition(".")[0] == __name__.partition(".")[0]
