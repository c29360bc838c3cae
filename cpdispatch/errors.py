"""The exceptions that cpdispatch raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike


class CpdispatchError(Exception):
    """Base of every error that cpdispatch raises on purpose."""


class UsageError(CpdispatchError):
    """A request that cannot be carried out as it was put: an unknown name, a folder in use."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is meant, to be put after the wrong one; may be empty."""
    known = list(known)
    # Letters that changed places are likelier than others.
    near = [each for each in known if sorted(each) == sorted(name)]
    near = near or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def unknown(what: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of the known ones; it suggests the nearest."""
    known = list(known)
    hint = nearest(str(name), known)
    return UsageError(f"unknown {what} {name!r}{hint} (one of {', '.join(known)})")


class DecisionError(CpdispatchError):
    """A dispatcher answered with a decision that its instance does not allow."""


def infeasible(name: str, now: int, violation: object, by: str = "") -> DecisionError:
    """The error that says what is wrong with a decision; ``by`` may say by whom it was made."""
    return DecisionError(
        f"{name} answered with an infeasible decision{by} at time {now}: {violation}"
    )


class DataError(CpdispatchError):
    """Additional data of the user's own failed to tell its value."""


class RenamedWarning(FutureWarning):
    """Something is called by a name that an earlier version had; the message says the new one."""


class InterruptedRunError(CpdispatchError):
    """The user asked to stop; what was done so far has been saved where there is a place for it."""


class InputError(CpdispatchError):
    """Input that cannot be understood: where it stands, what was found, what to do.

    Parameters
    ----------
    problem : str
        What is wrong, as a clause.
    file, line, field, value
        Where it stands and what was read there; what is unknown is left out of the message.
    advice : str
        What the user can do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        advice: str = "",
    ) -> None:
        where = "" if file is None else str(file) + (f":{line}" if line is not None else "")
        parts = [part for part in (where, f"field {field}" if field else "") if part]
        found = "" if value is None else f" (found {_short(repr(value))})"
        tail = f"; {advice}" if advice else ""
        text = ": ".join([*parts, problem + found + tail])
        # One line, whatever stands in the file.
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))
        self.problem = problem
        self.advice = advice
        self.file = file
        self.line = line
        self.field = field
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (str(self), self.__dict__)


def _short(text: str, most: int = 200) -> str:
    """A text for people, which nobody would read to its end."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 4 :]}"


def in_a_line(error: BaseException) -> str:
    """The first line of another library's error, or its kind when it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _restored(message: str, state: dict[str, object]) -> InputError:
    """An `InputError` that comes from another process."""
    error = InputError.__new__(InputError)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error
