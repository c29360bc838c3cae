"""The application: its commands, and what a command line comes to."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from cpdispatch import __version__
from cpdispatch.cli.archive import app as archive
from cpdispatch.cli.compare import compare
from cpdispatch.cli.experiment import experiment
from cpdispatch.cli.explain import explain
from cpdispatch.cli.generate import generate
from cpdispatch.cli.importing import app as import_
from cpdispatch.cli.learn import app as learn
from cpdispatch.cli.list import list_
from cpdispatch.cli.output import BAD_INPUT, DONE, INTERRUPTED, leave, leave_lost_terminal
from cpdispatch.cli.power import app as power
from cpdispatch.cli.predict import predict
from cpdispatch.cli.report import report
from cpdispatch.cli.resample import resample
from cpdispatch.cli.signals import SignalledError, ended_by_signals
from cpdispatch.cli.simulate import simulate
from cpdispatch.cli.slurm import app as slurm
from cpdispatch.cli.solve import solve
from cpdispatch.cli.status import status
from cpdispatch.cli.tune import tune
from cpdispatch.cli.verify import verify
from cpdispatch.cli.watch import watch
from cpdispatch.cli.whatif import whatif
from cpdispatch.errors import CpdispatchError, InterruptedRunError, RenamedWarning, UsageError

app = App(
    name="cpdispatch",
    help="Decide which jobs of an HPC cluster start now; replay job logs and compare dispatchers.",
    version=__version__,
    help_format="markdown",
    default_parameter=Parameter(json_list=False),  # of a folder whose name begins with [
)
COMMANDS = (
    simulate, experiment, whatif, compare, report, explain, status, watch, solve, verify, generate,
    resample, tune, predict,
)  # fmt: skip
for command in COMMANDS:
    app.command(command)
app.command(list_, name="list")
app.command(learn)
app.command(import_)
app.command(archive)
app.command(power)
app.command(slurm)


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    code = DONE
    try:
        with ended_by_signals(), renamed_names_told():
            code = app(
                arguments, exit_on_error=False, print_error=False, result_action="return_value"
            )
    except (CpdispatchError, CycloptsError) as error:
        code = INTERRUPTED if isinstance(error, InterruptedRunError) else BAD_INPUT
        _complain(error)
    except SignalledError as error:
        code = error.code
        _complain(error)
    except BrokenPipeError:
        sys.stderr.close()
    except MemoryError as error:
        code = BAD_INPUT
        said = f" ({error})" if str(error) else ""
        _complain(UsageError(f"there is not enough memory{said}: ask for less, or for fewer jobs"))
    except OSError as error:
        code = BAD_INPUT
        if error.filename is not None:  # a name too long, a folder that may not be looked into
            _complain(UsageError(f"{error.filename}: {error.strerror}"))
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            leave(1)
            _complain(UsageError(f"standard output cannot be written: {error.strerror}"))
        else:
            raise
    return code or DONE


@contextmanager
def renamed_names_told() -> Iterator[None]:
    """Tell of each name of an earlier version once, in a line of the command's own."""
    with warnings.catch_warnings():
        shown, told = warnings.showwarning, set[str]()

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int,
            file: Any = None, line: str | None = None,
        ) -> None:  # fmt: skip
            if not issubclass(category, RenamedWarning):
                shown(message, category, filename, lineno, file, line)
            elif str(message) not in told:
                told.add(str(message))
                print(f"cpdispatch: {message}", file=sys.stderr, flush=True)

        warnings.showwarning = show
        yield


def _complain(error: BaseException) -> None:
    leave_lost_terminal()
    print(f"cpdispatch: {error}{_hint(error)}", file=sys.stderr, flush=True)


def _hint(error: BaseException) -> str:
    """What to write where a value was taken for an option, because it begins with a dash."""
    if isinstance(error, MissingArgumentError):
        for option, value in pairwise(error.root_input_tokens or ()):
            if f" {option} " in str(error) and value[:1] == "-" and value[1:2].isdigit():
                return f" {value} looks like an option; write {option}={value}"
    return ""


def main() -> NoReturn:
    """Entry point of the command ``cpdispatch``."""
    # Arrow's own allocator keeps some 60 MB of what writing a run took.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if isinstance(sys.stdout, io.TextIOWrapper):  # of a locale that lacks what is said, such as ±
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run()
    leave_lost_terminal()
    sys.exit(code)
