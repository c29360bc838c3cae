"""Signals that end a command, and the wish to stop that the first one is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NoReturn

from cpdispatch.errors import InterruptedRunError

STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a command: Ctrl-C, the wish of a scheduler, a terminal that closes."""

ONCE_S = 1.0
"""Signals that follow the first one within so many seconds are the same wish.

A shell whose terminal closes, and programs such as timeout, send theirs twice.
"""


class SignalledError(BaseException):
    """A signal ends the command.

    Parameters
    ----------
    number : int
        Of the signal.
    said : str
        What is to be said of it.
    """

    def __init__(self, number: int, said: str = "interrupted") -> None:
        super().__init__(said)
        self.code = 128 + number


@contextmanager
def on_signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Have the signals that end a command handled so; only Python's main thread can.

    A hang-up that is ignored, as under nohup, stays so.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            ignored = signal.getsignal(number) in (signal.SIG_IGN, None)
            if number == signal.SIGINT or not ignored:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stoppable(kept: str) -> Iterator[Callable[[], bool]]:
    """Turn a first signal into a wish to stop; a later one ends the command at once.

    Parameters
    ----------
    kept : str
        Where the results are when the command has stopped, and how it goes on.
    """
    if _came:
        raise SignalledError(_came[0])
    wished: list[tuple[int, float]] = []

    def wish(number: int, frame: object) -> None:
        if not wished:
            wished.append((number, monotonic()))
        elif monotonic() - wished[0][1] >= ONCE_S:
            raise SignalledError(number)

    with on_signals(wish):
        try:
            yield lambda: bool(wished)
        except InterruptedRunError as error:
            number = wished[0][0] if wished else signal.SIGINT
            raise SignalledError(number, f"{error}; {kept}") from error


_came: list[int] = []


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have a command end at once when a signal comes, but where it is `stoppable`."""
    _came.clear()
    with on_signals(_end):
        yield


def _end(number: int, frame: object) -> NoReturn:
    # What is raised in a call that comes from C, as while kernels are loaded, is lost.
    _came.append(number)
    raise SignalledError(number)
