"""How Slurm writes values: times, durations, amounts of memory, TRES, GRES, arrays of jobs.

A text that is not what a function here reads is a ValueError, whose message says so in a clause.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cpdispatch.parameters import count_of
from cpdispatch.system import LIMIT

NOTHING = frozenset(("", "Unknown", "None", "N/A", "(null)", "Invalid"))
"""What stands for no value."""
NO_LIMIT = frozenset(("UNLIMITED", "INFINITE", "Partition_Limit"))
"""Time limits that are no number."""
_UNITS_KB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4, "E": 1024**5}
_COUNTS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}

_DURATION = re.compile(
    r"(?:(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?"
    r"|(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9}))(?:\.\d+)?",
    re.ASCII,
)
_SIZE = re.compile(r"(\d{1,15})(\.\d{1,6})?([KMGTPE]?)B?([nc]?)", re.ASCII)
_GRES = re.compile(
    r"([A-Za-z][\w.-]*)(?::(\d*[A-Za-z_][\w.-]*))??(?::(\d{1,9})([KMG]?))?", re.ASCII
)
_ARRAY = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
_TASKS_MAX = 10_000_000


def duration_s(text: str) -> int:
    """Seconds of ``[days-]hours:minutes:seconds`` or ``minutes:seconds``; a fraction is cut.

    With days the shorter forms are ``days-hours`` and ``days-hours:minutes``.

    Examples
    --------
    >>> duration_s("2-03:00:00"), duration_s("00:02:30"), duration_s("01:05.250"), duration_s("1-2")
    (183600, 150, 65, 93600)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("not a duration")
    days, h, m, s, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = days * 86_400 + (h + hours) * 3600 + (m + minutes) * 60 + s + seconds
    if total > LIMIT:
        raise ValueError("longer than can be counted")
    return total


def size_mb(text: str) -> tuple[int, str]:
    """MB of an amount of memory, rounded up, and what it is for.

    Parameters
    ----------
    text : str
        As ``4G``, ``2000Mc``, ``4Gn`` or ``1.50T``; a number without a unit is in MB.

    Returns
    -------
    mb : int
    each : str
        ``c``: for each CPU; ``n``: for each node; empty: not said.

    Examples
    --------
    >>> size_mb("4Gn"), size_mb("2000Mc"), size_mb("62.50G"), size_mb("1500K")
    ((4096, 'n'), (2000, 'c'), (64000, ''), (2, ''))
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("not an amount of memory")
    whole, fraction, unit, each = found.groups()
    digits = (fraction or ".")[1:]
    parts = int(whole + digits) * _UNITS_KB[unit or "M"]
    mb = -(-parts // (10 ** len(digits) * 1024))
    if mb > LIMIT:
        raise ValueError("more memory than can be counted")
    return mb, each


def tres(text: str) -> dict[str, str]:
    """The values of a TRES string by name, as ``cpu=4,mem=8G,node=2,gres/gpu:a100=2``.

    Examples
    --------
    >>> tres("cpu=4,gres/gpu:a100=2")
    {'cpu': '4', 'gres/gpu:a100': '2'}
    """
    values: dict[str, str] = {}
    for part in text.split(",") if text not in NOTHING else ():
        name, equals, value = part.partition("=")
        if not name or not equals or name in values:
            raise ValueError("not a TRES string")
        values[name] = value
    return values


def count(text: str) -> int:
    """A number of things, as ``16`` or ``2K``."""
    found = re.fullmatch(r"(\d{1,15})([KMG]?)", text, re.ASCII)
    if found is None:
        raise ValueError("not a whole number from 0 on, of 15 digits at most")
    number = int(found[1]) * _COUNTS[found[2]]
    if number > LIMIT:
        raise ValueError("more than can be counted")
    return number


def gpus_of_gres(text: str) -> dict[str, int]:
    """GPUs of a node by resource type: ``gpu`` is all of them, ``gpu_a100`` those of a type.

    Parameters
    ----------
    text : str
        As ``gpu:a100:4(S:0-1),gpu:1g.5gb:2`` or ``gpu:4``; what a node uses of GPUs without a type
        may be ``gpu:(null):4(IDX:0-3)``. Other generic resources are left out.

    Examples
    --------
    >>> gpus_of_gres("gpu:a100:4(S:0-1),shard:8,gpu:2,gpu:1g.5gb,bandwidth:lustre:no_consume:4G")
    {'gpu': 7, 'gpu_a100': 4, 'gpu_1g_5gb': 1}
    >>> gpus_of_gres("gpu:(null):2(IDX:0-1)")
    {'gpu': 2}
    """
    gpus: dict[str, int] = {}
    if text in NOTHING:
        return gpus
    for part in re.sub(r":\(null\)|\([^)]*\)", "", text).split(","):
        found = _GRES.fullmatch(part.removeprefix("gres/").replace(":no_consume", ""))
        if found is None:
            raise ValueError("not a list of generic resources")
        name, kind, number, factor = found.groups()
        if name != "gpu":
            continue
        many = int(number or 1) * _COUNTS[factor or ""]
        for key in dict.fromkeys(("gpu", gpu_name(kind or ""))):
            gpus[key] = gpus.get(key, 0) + many
    return gpus


def gpu_name(kind: str) -> str:
    """The resource type of GPUs of a type; that of all GPUs for the empty one.

    Examples
    --------
    >>> gpu_name("A100"), gpu_name("")
    ('gpu_a100', 'gpu')
    """
    return "gpu_" + re.sub(r"\W", "_", kind.lower()) if kind else "gpu"


def tasks_of(job_id: str) -> int:
    """How many jobs a record stands for: the tasks of an array that have no record of their own.

    Parameters
    ----------
    job_id : str
        As ``12``, ``12_3``, ``12_[1-5]`` or ``12_[1,4-10:2%3]``.

    Examples
    --------
    >>> tasks_of("12"), tasks_of("12_3"), tasks_of("12_[1,4-10:2%3]")
    (1, 1, 5)
    """
    found = re.fullmatch(r"\d+_\[([^\]%]*)(?:%[^\]]*)?\]", job_id, re.ASCII)
    return 1 if found is None else tasks_in(found[1])


def tasks_in(text: str) -> int:
    """How many numbers a list such as ``1,4-10:2`` has."""
    return sum(map(len, task_ranges(text)))


def tasks_of_bits(text: str) -> str:
    """A list such as ``1-4`` of the bits of ``0x1E``; any other text is itself.

    So ``sacct --json`` of Slurm 22.05 writes the tasks of an array that have not started.
    """
    if re.fullmatch(r"0x[0-9A-Fa-f]+", text) is None or len(text) > _TASKS_MAX // 4:
        return text
    runs = re.finditer("1+", f"{int(text, 16):b}"[::-1])
    return ",".join(f"{run.start()}-{run.end() - 1}" for run in runs)


def task_ranges(text: str) -> list[range]:
    """The numbers in a list such as ``1,4-10:2``.

    Examples
    --------
    >>> task_ranges("1,4-10:2")
    [range(1, 2), range(4, 11, 2)]
    """
    found: list[range] = []
    tasks = 0
    for part in text.split(","):
        # Slurm cuts long lists.
        if part.endswith("...") and tasks:
            break
        piece = _ARRAY.fullmatch(part)
        if piece is None:
            raise ValueError("not a list of tasks of an array")
        first, last, step = int(piece[1]), int(piece[2] or piece[1]), int(piece[3] or 1)
        if last < first or step < 1:
            raise ValueError("not a list of tasks of an array")
        found.append(range(first, last + 1, step))
        tasks += len(found[-1])
        if tasks > _TASKS_MAX:
            raise ValueError("more tasks than an array has")
    return found


def time_s(text: str, zone: ZoneInfo, after_s: int = 0) -> int:
    """Seconds since 1970 of a time as ``2026-11-20T17:06:08``, or of such seconds.

    Of the hour that the end of summer time repeats, the first is meant, unless it is before
    ``after_s`` and the second is not.

    Examples
    --------
    >>> time_s("2026-07-01T02:00:00", ZoneInfo("Europe/Berlin"))
    1782864000
    >>> time_s("1782864000", ZoneInfo("UTC"))
    1782864000
    """
    first_s = _time_s(text, zone, 0)
    if first_s >= after_s:
        return first_s
    second_s = _time_s(text, zone, 1)
    return second_s if second_s >= after_s else first_s


@lru_cache(maxsize=1 << 16)
def _time_s(text: str, zone: ZoneInfo, fold: int) -> int:
    """A time by one of the two readings of an hour that comes twice."""
    if text.isascii() and text.isdigit():
        seconds = int(text) if len(text) <= 15 else LIMIT + 1
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("not a date and time as 2026-01-31T12:00:00") from None
        try:
            seconds = int(
                (time if time.tzinfo else time.replace(tzinfo=zone, fold=fold)).timestamp()
            )
        except OverflowError as error:
            raise ValueError("not a time") from error
    if not 0 <= seconds <= LIMIT:
        raise ValueError("not a time since 1970")
    return seconds


def nodes_in(text: str) -> list[str]:
    """Names in a list of nodes such as ``n[01-03,7],gpu1`` or ``r[1-2]n[1-2]``.

    Examples
    --------
    >>> nodes_in("n[01-03,7],gpu1")
    ['n01', 'n02', 'n03', 'n7', 'gpu1']
    >>> nodes_in("r[1-2]n[1-2]")
    ['r1n1', 'r1n2', 'r2n1', 'r2n2']
    """
    names: list[str] = []
    if text.count("[") != text.count("]"):  # as in a list that was cut short
        raise ValueError("not a list of nodes")
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        # What is outside and inside of brackets, in turn.
        pieces = re.split(r"\[([^\]]*)\]", part)
        made = [pieces[0]]
        for inside, tail in zip(pieces[1::2], pieces[2::2], strict=True):
            numbers = _numbers(inside, _TASKS_MAX // len(made) if made else 0)
            made = [f"{name}{number}{tail}" for name in made for number in numbers]
        if len(names) + len(made) > _TASKS_MAX:
            raise ValueError("more nodes than a cluster has")
        names += made
    return names


def _numbers(text: str, most: int) -> list[str]:
    """The numbers in a list such as ``01-03,7``, as they are written."""
    found: list[str] = []
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        low, high = count_of(first), count_of(last if dash else first)
        if low is None or high is None:
            raise ValueError("not a list of nodes")
        numbers = range(low, high + 1)
        if len(found) + len(numbers) > most:
            raise ValueError("more nodes than a cluster has")
        found += [f"{number:0{len(first)}}" for number in numbers]
    return found
