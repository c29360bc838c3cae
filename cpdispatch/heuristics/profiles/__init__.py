"""Resource profiles: what is free over time, and until when; compiled kernels.

`profile` has the one type, `Profile`: rows of segments, with the kernels that split a segment, hold
capacity and find the earliest start. A row is what its user makes of it:

- `per_class`: a row for each class of nodes that are alike, and one for the power cap, for list
  schedules and the searches over them.
- `cpdispatch.models.pooled`: one row for the pool of all nodes.

Three stay apart. `per_node` has segments that all nodes have in common, for reservations of any
depth; its docstring says why. `cpdispatch.models.families` counts what is free once, for lower
bounds: nothing is held there, and no start is looked for. The checker has its own sweep over time,
so that it shares no error with what it checks.
"""
