"""Any dispatcher on a live Slurm: watched, or driven.

Slurm is read through its REST daemon (`client`, `cluster`), and told as an instance (`picture`).
`watch` shows what a dispatcher would start now. `drive` starts it: jobs enter held, and are
released with the names of their nodes; `journal` keeps what was decided, `guard` sees to it that
one driver runs at a time, and that Slurm holds no new jobs where none does.
"""
