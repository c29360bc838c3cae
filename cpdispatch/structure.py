"""Data of files against the structure that is expected: errors that name the key and the word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike, fspath
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from cpdispatch.errors import InputError, nearest

Struct = TypeVar("Struct")

_NAMES = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object"}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "keys with values",
}


def converted(data: Any, type: type[Struct], what: str, file: str | PathLike[str]) -> Struct:
    """Convert what stands in a file to a structure.

    Parameters
    ----------
    data : object
        What a parser made of the file.
    type : type
        What is expected, as msgspec takes it.
    what : str
        What that is called in errors, such as ``an experiment``.

    Raises
    ------
    InputError
        With the path of the key, the value that was found there, and what may stand there.
    """
    try:
        return msgspec.convert(data, type)
    except msgspec.ValidationError as error:
        raise misfit(error, data, type, what, file) from error


def misfit(
    error: Exception, data: Any, type: Any, what: str, file: str | PathLike[str]
) -> InputError:
    """Say in the words of people what does not fit the structure, see `converted`."""
    problem, _, path = str(error).partition(" - at `")
    steps = _steps(path.rpartition("$")[2].removesuffix("`"))
    expected = re.match("Expected `(.*?)`", problem)
    kind = problem.partition(", got `")[2].removesuffix("`")
    root = inspect.type_info(type)
    keys = _chosen(data, steps, kind, root, problem)
    field, value = _name(keys), _at(data, keys)
    found, advice = None if isinstance(value, dict | list) else value, ""
    if key := re.search("(unknown|missing required) field `(.*)`", problem, re.DOTALL):
        problem = f"{key[1]} key"
        if key[1] == "unknown":
            advice = _meant(key[2], keys, root)
            found = _at(data, [*keys, key[2]])
            found = None if isinstance(found, dict | list) else found
        field = _name([*keys, key[2]])
    elif "enum value" in problem:
        words = [str(word) for word in _values(_of_path(root, keys)) if word]
        problem = f"expected one of {', '.join(words)}"
        hint = nearest(str(value), words) or nearest(str(value).lower(), words)
        advice = hint.removeprefix("; ")
    elif expected and kind:
        words = [_WORDS.get(each, each) for each in expected[1].split(" | ") if each != "null"]
        problem = f"expected {' or '.join(words)}"
        if kind == "object":
            problem += ", found keys with values"
            listed = expected[1] == "array" and ".toml" in fspath(file)
            advice = f"write [[{field}]] instead of [{field}]" if listed else ""
        elif kind == "array":
            problem += ", found a list"
    return InputError(f"not {what}: {problem}", file=file, field=field, value=found, advice=advice)


def _steps(path: str) -> list[str | int | None]:
    """The steps of a path such as ``.jobs[0].start``; None: some key, which the path leaves out."""
    return [
        key or (int(index) if index.isdigit() else None)
        for key, index in re.findall(r"\.([^.\[]+)|\[([^]]+)]", path)
    ]


def _chosen(
    data: Any, steps: list[str | int | None], kind: str, of: inspect.Type, problem: str
) -> list[str | int]:
    """The steps with keys in place of those that are left out: the first that has the problem."""
    found = _candidates(data, steps, kind, of, problem)
    return next(found, [step for step in steps if step is not None])


def _candidates(
    data: Any, steps: list[str | int | None], kind: str, of: inspect.Type, problem: str
) -> Iterator[list[str | int]]:
    if not steps:
        if not kind or _NAMES.get(type(data)) == kind:
            yield []
        return
    first, rest = steps[0], steps[1:]
    keys: list[Any] = list(data) if first is None and isinstance(data, dict) else [first]
    for key in keys:
        value, inner = _at(data, [key]), _of_path(of, [key])
        if first is None and isinstance(inner, inspect.StructType):
            wanted = _problem(value, inner.cls) == problem
        else:
            wanted = True
        if not wanted:
            continue
        for found in _candidates(value, rest, kind, inner, problem):
            yield [key, *found]


def _problem(data: Any, type: Any) -> str:
    """What does not fit a structure, in msgspec's words; empty if it fits."""
    try:
        msgspec.convert(data, type)
    except msgspec.ValidationError as error:
        return str(error).partition(" - at `")[0]
    return ""


def _at(data: Any, keys: list[str | int]) -> Any:
    """The value at a path; None where there is none."""
    try:
        for key in keys:
            data = data[key]
    except (LookupError, TypeError):
        return None
    return data


def _name(keys: list[str | int]) -> str | None:
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys]
    return "".join(parts).removeprefix(".") or None


def _meant(key: str, keys: list[str | int], root: inspect.Type) -> str:
    """A hint at the key that is meant, or at the place where this one belongs."""
    known = [field.encode_name for field in _fields(_of_path(root, keys))]
    hint = nearest(key, known).removeprefix("; ")
    elsewhere = next((place for place, names in _places(root) if key in names), None)
    if elsewhere is not None:
        return f"it belongs {'into ' + elsewhere if elsewhere else 'at the top'}"
    of = f"one of {', '.join(known)}"
    return f"{hint} ({of})" if hint else f"write {of}"


def _places(of: inspect.Type, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """The keys of a structure and of all that are inside, each with its path."""
    fields = _fields(of)
    if fields:
        yield path, [field.encode_name for field in fields]
    for field in fields:
        inner = _inside(field.type)
        yield from _places(inner, f"{path}.{field.encode_name}".removeprefix("."))


def _of_path(of: inspect.Type, keys: list[str | int]) -> inspect.Type:
    """The type of what stands at a path."""
    for key in keys:
        if not isinstance(key, int):
            named = [field.type for field in _fields(of) if field.encode_name == key]
            of = named[0] if named else of
        of = _inside(of)
    return of


def _inside(of: inspect.Type) -> inspect.Type:
    """The type of what a list, an object of any keys or an optional value holds; else itself."""
    if isinstance(of, inspect.UnionType):
        given = [each for each in of.types if not isinstance(each, inspect.NoneType)]
        return _inside(given[0])
    if isinstance(of, inspect.DictType):
        return _inside(of.value_type)
    if isinstance(of, inspect.ListType | inspect.VarTupleType):
        return _inside(of.item_type)
    return of


def _fields(of: inspect.Type) -> tuple[inspect.Field, ...]:
    return of.fields if isinstance(of, inspect.StructType) else ()


def _values(of: inspect.Type) -> list[Any]:
    if isinstance(of, inspect.LiteralType):
        return list(of.values)
    return [each.value for each in of.cls] if isinstance(of, inspect.EnumType) else []
