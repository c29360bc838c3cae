"""Power profiles of jobs: what each one looks like over time.

A profile is what a job draws, in watts, minute by minute. It is of one of these kinds:

``constant``
    It hardly varies.
``periodic``
    Its level stays, and it goes up and down with a period.
``irregular``
    Its level stays, and it varies without a period.
``changing``
    Its level changes: phases, a ramp.
``short``
    It has too few minutes to say.

References
----------
Zrigui, "Scheduling and resource management with learning and simulation in HPC platforms",
Universite Grenoble Alpes, 2021, chapter 7: minute means, outliers, windows, and the limit of a
tenth of the range. Fisher, "Tests of significance in harmonic analysis", Proceedings of the Royal
Society A 125, 1929: when the strongest frequency is more than noise.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import FloatArray
from cpdispatch.durations import YEAR_10000_S
from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import not_a_table, other_commas, parquet_frame, read_text

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("constant", "periodic", "irregular", "changing", "short")

MINUTE_S = 60
LONGEST_S = 3650 * 86_400
"""Longest time from a job's first sample to its last: a mistyped time must not ask for more."""
SPARSE_S = 1000
"""Samples that are so far apart say nothing of minutes; a second is so many milliseconds."""
OUTLIER = 3.0
"""Minutes that are so many standard deviations away from the mean are left out."""
WINDOWS = 6
LIMIT = 0.1
"""Share of the range up to which a profile is constant, and its level stays."""
CHANCE = 0.01
"""How often noise may be taken for a period."""
PERIODS_MIN = 3
"""A profile that has a period shows it so many times."""
MINUTES_MIN = 2 * WINDOWS


@dataclass(frozen=True, slots=True)
class Shape:
    """What a profile looks like.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    minutes : int
        How many minutes were judged.
    mean_w, spread_w : float
        Mean and standard deviation, watts; NaN of no minutes.
    level_spread_w : float
        Standard deviation of the means of six windows, watts; NaN if it is short.
    period_min : float
        Minutes from peak to peak; NaN if it is not periodic.
    """

    kind: str
    minutes: int
    mean_w: float
    spread_w: float
    level_spread_w: float = np.nan
    period_min: float = np.nan


def minute_means(time_s: FloatArray, watts: FloatArray) -> FloatArray:
    """Means of the minutes from the first sample on.

    Parameters
    ----------
    time_s, watts : float array, shape (samples,)
        In any order.

    Returns
    -------
    float array, shape (minutes,)
        A minute without a sample lies on the line between its neighbours.
    """
    if not len(time_s):
        return np.empty(0)
    minute = ((time_s - time_s.min()) // MINUTE_S).astype(np.int64)
    count = np.bincount(minute)
    total = np.bincount(minute, weights=watts)
    return _filled(total / np.where(count, count, np.nan))


def prepared(time_s: FloatArray, watts: FloatArray, trim: int = 1) -> FloatArray:
    """What is judged of a profile: its minute means without its ends and without outliers.

    Parameters
    ----------
    time_s, watts : float array, shape (samples,)
    trim : int
        Minutes that are left out at the start and at the end, where a job only begins or ends.

    Returns
    -------
    float array, shape (minutes,)
        Outliers are replaced by what lies between their neighbours.
    """
    means = minute_means(time_s, watts)
    return without_outliers(means[trim : max(len(means) - trim, trim)])


def without_outliers(means: FloatArray) -> FloatArray:
    """The minutes, those that are outliers replaced by what lies between their neighbours."""
    if not len(means):
        return means
    away = np.abs(means - means.mean()) > OUTLIER * means.std()
    return _filled(np.where(away, np.nan, means))


def judge(means: FloatArray, range_w: float) -> Shape:
    """Say what kind a profile is of.

    Parameters
    ----------
    means : float array, shape (minutes,)
        From `prepared`.
    range_w : float
        Watts between idle and full load.
    """
    minutes = len(means)
    if not minutes:
        return Shape("short", 0, np.nan, np.nan)
    mean_w, spread_w = float(means.mean()), float(means.std())
    if minutes < MINUTES_MIN:
        return Shape("short", minutes, mean_w, spread_w)
    level_w = float(np.std([window.mean() for window in np.array_split(means, WINDOWS)]))
    if level_w > LIMIT * range_w:
        return Shape("changing", minutes, mean_w, spread_w, level_w)
    if spread_w <= LIMIT * range_w:
        return Shape("constant", minutes, mean_w, spread_w, level_w)
    period_min = period(means)
    kind = "irregular" if np.isnan(period_min) else "periodic"
    return Shape(kind, minutes, mean_w, spread_w, level_w, period_min)


def period(means: FloatArray) -> float:
    """Minutes from peak to peak, NaN if the strongest frequency may be noise.

    The strongest frequency of the Fourier transform counts if its share of the power is one that
    white noise has in one profile of a hundred at most (Fisher's test, its bound from above).
    """
    power = np.abs(np.fft.rfft(means - means.mean())[1:]) ** 2
    if len(means) % 2 == 0:
        power = power[:-1]  # the highest frequency has one degree of freedom only
    total = power.sum()
    if not len(power) or total <= 0:
        return np.nan
    strongest = int(np.argmax(power))
    share = min(power[strongest] / total, 1.0)
    chance = len(power) * (1 - share) ** (len(power) - 1)
    repeats = strongest + 1 >= PERIODS_MIN
    return len(means) / (strongest + 1) if repeats and chance <= CHANCE else np.nan


def judge_all(
    profiles: Mapping[str, FloatArray], range_w: float | None = None
) -> tuple[dict[str, Shape], float]:
    """Say of each profile what kind it is of.

    Parameters
    ----------
    profiles : mapping of str to float array, shape (minutes,)
        From `prepared`, by job.
    range_w : float, optional
        Watts between idle and full load; without it, from the lowest to the highest minute of all
        profiles.

    Returns
    -------
    dict of str to Shape, float
        By job, and the range.

    Raises
    ------
    UsageError
        When the range is not above 0, or is to be found and no job has a minute.
    """
    if range_w is None:
        judged = [means for means in profiles.values() if len(means)]
        if not judged:
            raise UsageError(
                "no job has a minute left between the first and the last ones that are left out: "
                "leave out fewer, for example none with --trim 0"
            )
        low, high = min(map(np.min, judged)), max(map(np.max, judged))
        range_w = float(high - low)
        if range_w <= 0:
            raise UsageError(
                "all minutes of all jobs draw the same, so that there is no range to measure by: "
                "give the watts between idle and full load, for example --range 250"
            )
    elif not 0 < range_w < np.inf:
        raise UsageError(f"a range of {range_w:g} W: a finite number above 0 is needed")
    return {job: judge(means, range_w) for job, means in profiles.items()}, range_w


# -------------------------------------------------------------------------------------- the files


def read(
    path: str | os.PathLike[str],
    job: str = "job",
    time: str = "time",
    watts: str = "watts",
    trim: int = 1,
) -> dict[str, FloatArray]:
    """Read a table of samples, one a row, and prepare the profile of each job.

    Parameters
    ----------
    path : path
        CSV, plain or packed (.gz, .xz, .zst), or ``.parquet``.
    job, time, watts : str
        The columns: number or name of the job; seconds, or date and time; watts.
    trim : int
        See `prepared`.

    Returns
    -------
    dict of str to float array, shape (minutes,)
        By job, in the order in which they first come.

    Raises
    ------
    InputError
        When the file cannot be read, a column is missing, or a cell is wrong (named by its line).
    """
    frame, file = _table(Path(path), job), Path(path)
    for name in (job, time, watts):
        if name not in frame:
            raise InputError(
                f"the column is missing; the columns are {', '.join(map(str, frame.columns))}",
                file=file, field=name,
                advice=other_commas(frame.columns)
                or "say which column is what: --job, --time, --watts",
            )  # fmt: skip
    power = _numbers(frame[watts], file, "not a number of watts, 0 or more")
    if (power < 0).any():
        raise _wrong(
            frame[watts], int(np.argmax(power < 0)), file, "not a number of watts, 0 or more"
        )
    if frame.empty:
        raise InputError("the table has no row", file=file, advice="write one sample a row")
    moment = _moments(frame[time], file)
    name_of = frame[job]
    nameless = (name_of.isna() | (name_of.astype(str).str.strip() == "")).to_numpy()
    if nameless.any():
        raise _wrong(name_of, int(np.argmax(nameless)), file, "no job")
    samples = frame.groupby(job, sort=False).indices
    for of_job, rows in samples.items():
        first_s = moment[rows].min()
        late = rows[moment[rows] - first_s > LONGEST_S]
        if len(late):
            raise _wrong(
                frame[time], int(late[0]), file,
                f"more than {LONGEST_S // 86_400} days after the first sample of job {of_job}: "
                "times are seconds, or dates and times",
            )  # fmt: skip
    gaps_s = np.concatenate([np.diff(np.sort(moment[rows])) for rows in samples.values()])
    if len(gaps_s) and (usual_s := float(np.median(gaps_s))) >= SPARSE_S:
        raise InputError(
            f"the samples of a job are {usual_s:g} s apart, by the median: a profile needs about "
            "one a minute",
            file=file, field=time, advice="times are seconds: divide milliseconds by 1000",
        )  # fmt: skip
    return {str(name): prepared(moment[rows], power[rows], trim) for name, rows in samples.items()}


def _table(path: Path, job: str) -> pd.DataFrame:
    """The table; in that of a CSV file the names of jobs are as they are written."""
    import pandas as pd

    if path.suffix == ".parquet":
        return parquet_frame(path)
    content = read_text(path)
    try:
        return pd.read_csv(
            io.BytesIO(content), low_memory=False, skipinitialspace=True,
            converters={job: str.strip}, na_filter=False,
        )  # fmt: skip
    except Exception as error:  # whatever pandas makes of a strange table
        raise not_a_table(error, path) from error


def _numbers(column: pd.Series, file: Path, wanted: str) -> FloatArray:
    import pandas as pd

    found = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = ~np.isfinite(found)
    if bad.any():
        raise _wrong(column, int(np.argmax(bad)), file, wanted)
    return found


def _moments(column: pd.Series, file: Path) -> FloatArray:
    """Seconds, of numbers or of dates and times."""
    import pandas as pd

    wanted = "not a time: neither seconds nor a date and time"
    dates = column.dtype.kind == "M"
    if not dates and pd.to_numeric(column, errors="coerce").notna().mean() > 0.5:
        found_s = _numbers(column, file, wanted)
        if (late := np.abs(found_s) >= YEAR_10000_S).any():
            raise _wrong(
                column, int(np.argmax(late)), file, "beyond the year 9999: times are seconds"
            )
        return found_s
    found = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
    bad = found.isna().to_numpy()
    if bad.any():
        raise _wrong(column, int(np.argmax(bad)), file, wanted)
    far = ~found.dt.year.between(1678, 2261).to_numpy()
    if far.any():  # nanoseconds reach no further
        raise _wrong(column, int(np.argmax(far)), file, "before the year 1678 or after 2261")
    since = found - pd.Timestamp(0, tz="UTC")
    return np.asarray(since.dt.total_seconds(), dtype=np.float64)


def _wrong(column: pd.Series, row: int, file: Path, problem: str) -> InputError:
    import pandas as pd

    first = 1 if file.suffix == ".parquet" else 2
    found = column.iloc[row]
    value = "" if pd.isna(found) else str(found)
    return InputError(
        problem, file=file, line=row + first, field=str(column.name), value=value,
        advice="correct the cell, or leave the row out",
    )  # fmt: skip


def table(shapes: Mapping[str, Shape]) -> Iterator[dict[str, object]]:
    """Rows for a file: a job each."""
    for job, shape in shapes.items():
        row = {"job": job, "kind": shape.kind, "minutes": shape.minutes}
        for name in ("mean_w", "spread_w", "level_spread_w", "period_min"):
            value = getattr(shape, name)
            row[name] = None if np.isnan(value) else round(value, 3)
        yield row


def _filled(values: FloatArray) -> FloatArray:
    """The values with lines through the gaps (NaN)."""
    known = ~np.isnan(values)
    if known.all() or not known.any():
        return values
    at = np.arange(len(values))
    return np.asarray(np.interp(at, at[known], values[known]))
