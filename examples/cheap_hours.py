"""A dispatcher of one's own: the engine under a lower cap on the power while energy is dear."""

from __future__ import annotations

from dataclasses import replace

import cpdispatch as cpd
from cpdispatch.energy import ENERGY_PRICE, Steps
from cpdispatch.instance import Power

HOUR_S, DAYS = 3600, 30
CHEAP, DEAR = 0.10, 0.40  # per kilowatt hour, at night and from 8 to 20
SHARE = 0.3  # of what all cores draw together, while energy is dear


class CheapHours:
    """Plans as ``hcp`` does; new jobs start only under the lower cap while energy is dear."""

    name = "cheap-hours"

    def __init__(self) -> None:
        self.engine = cpd.make("hcp:wait=off,limit=0.2")

    def dispatch(self, instance: cpd.Instance) -> cpd.Decision:
        if instance.data[ENERGY_PRICE] > CHEAP:
            unit = instance.system.unit_watts
            power = instance.power or Power(int(instance.system.total @ unit), unit)
            instance = replace(instance, power=power)
            drawn = int(instance.job_power(instance.running.jobs).sum())
            lower = max(int(SHARE * instance.system.total @ unit), drawn)
            instance = replace(instance, power=replace(power, cap=min(power.cap, lower)))
        return self.engine.dispatch(instance)


def tariff() -> Steps:
    """Dear from 8 to 20 o'clock, cheap at night."""
    times = [(day * 24 + hour) * HOUR_S for day in range(DAYS) for hour in (8, 20)]
    return Steps(ENERGY_PRICE, (0, *times), (CHEAP, *(DEAR, CHEAP) * DAYS))


def main() -> None:
    sample = cpd.eurora_sample(300)
    columns = {"id": sample.table.id, "units": sample.table.units, "core": 8}
    columns |= {"submit": sample.table.submit_s * 20, "runtime": sample.runtime_s * 10}
    system = cpd.System(
        "alike", ("core",), (cpd.NodeGroup("node", 64, (8,)),),
        watts={"core": 20}, idle_watts={"node": 40},
    )  # fmt: skip
    jobs, _ = cpd.prepare(cpd.from_table(columns), system)
    for dispatcher in ("hcp:wait=off,limit=0.2", CheapHours()):
        run = cpd.simulate(jobs, system, dispatcher, energy_price=tariff())
        assert run.verify() == []
        name = dispatcher if isinstance(dispatcher, str) else dispatcher.name
        found = run.metrics
        print(
            f"{name:>22}: {found['energy_jobs_kwh']:,.0f} kWh of jobs, cost "
            f"{found['energy_cost']:.0f}, mean wait {found['wait_s_mean'] / 60:.0f} min"
        )


if __name__ == "__main__":
    main()
