"""Random workloads, as a reader could have made them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.jobs import LABELLED, Column, JobTable, Workload, job_block

LARGE = 10**9


@st.composite
def processor_workloads(draw: st.DrawFn) -> Workload:
    """Workloads whose units are processors, such as an SWF log holds."""
    jobs = draw(st.integers(1, 8))

    def column(least: int, most: int = LARGE) -> IntArray:
        numbers = st.integers(least, most)
        return np.array(draw(st.lists(numbers, min_size=jobs, max_size=jobs)), dtype=np.int64)

    ids = draw(st.lists(st.integers(0, LARGE), min_size=jobs, max_size=jobs, unique=True))
    request = np.stack([np.ones(jobs, dtype=np.int64), column(0)], axis=1)
    submit_s, ids = np.array(sorted(zip(column(0).tolist(), ids, strict=True))).T
    block = job_block(
        id=ids,
        submit_s=submit_s,
        units=column(1),
        requested_s=column(1),
        request=request,
        **{name: column(-1) for name in LABELLED},
    )
    header = draw(st.lists(st.sampled_from(["; Note: é", ";", "; MaxProcs: 7"]), unique=True))
    return Workload(
        name="random",
        resources=("core", "mem"),
        table=JobTable(block),
        runtime_s=column(0),
        preceding=column(-1),
        think_s=column(-1),
        processors=7 if "; MaxProcs: 7" in header else None,
        header=tuple(header) or ("; Computer: none",),
        memory_unit_kb=1,
        per_processor=True,
    )


@st.composite
def resource_workloads(draw: st.DrawFn) -> Workload:
    """Workloads of several resource types, with names behind some numbers."""
    plain = draw(processor_workloads())
    jobs = len(plain)
    names = draw(st.lists(st.sampled_from(["core", "gpu", "mic", "fpga"]), min_size=1, unique=True))
    request = draw(
        st.lists(
            st.lists(st.integers(0, 99), min_size=len(names) + 1, max_size=len(names) + 1).filter(
                any
            ),
            min_size=jobs,
            max_size=jobs,
        )
    )
    table = plain.table
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=6)
    people = draw(st.lists(text.filter(lambda t: not _is_number(t)), min_size=1, unique=True))
    user = draw(st.lists(st.integers(-1, len(people) - 1), min_size=jobs, max_size=jobs))
    block = job_block(
        id=table.id,
        submit_s=table.submit_s,
        units=table.units,
        requested_s=table.requested_s,
        request=request,
        user=user,
        queue=table.column(Column.QUEUE),
    )
    return Workload(
        name="random",
        resources=(*names, "mem"),
        table=JobTable(block, {"user": tuple(sorted(people))}),
        runtime_s=plain.runtime_s,
        preceding=plain.preceding,
        think_s=plain.think_s,
        memory_unit_kb=draw(st.sampled_from([None, 1, 1024, 1024 * 1024])),
    )


def _is_number(text: str) -> bool:
    """Whether a table takes a cell for a number, not for a name."""
    try:
        float(text)
    except ValueError:
        return False
    return True
