"""hyper: chooses a model and its share of the budget by its results on similar instances.

This is an experiment. In two replays of generated workloads its mean bounded slowdown was 5.05 and
1.75, against 5.14 and 1.66 of hcp and 4.91 and 1.69 of the local search without CP-SAT.

It is a bandit. Instances are sorted into kinds by a few features. For each kind and choice there is
a record of what the choice gained over the first plan, less a price for the time that it took. The
choice with the best record is taken, with a bonus for those that were seldom tried. It learns from
every decision. The package ships with a record, made by ``benchmarks/hyper_prior.py``.

References
----------
Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine
Learning 2002: UCB1. Galleguillos, "Constraint programming-based job dispatching for modern HPC
applications", 2020, names the choice of a model per instance as future work.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import msgspec
import numpy as np

from cpdispatch.decision import Decision
from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, read_text, write_bytes
from cpdispatch.garbage import no_collection
from cpdispatch.instance import Instance
from cpdispatch.models.budget import Budget
from cpdispatch.models.engine import Engine, warm_up, warm_up_stopped
from cpdispatch.models.part import Selection
from cpdispatch.models.part_search import MODELS, Answer
from cpdispatch.toys import have_stopped

FORMAT = "cpdispatch-hyper/1"

SHARES = (0.1, 1.0)
"""Of the time limit."""

LEAST_S = 0.05
"""Least share of the limit that a choice gets."""

PRICE = 0.02
"""The price of the whole time limit: 2 % of the wait that could be saved."""

CURIOSITY = 0.02
"""Weight of the bonus for choices that were seldom tried."""

PRIOR_TRIES = 5
"""What a choice of the record that the package ships with counts for at most, in tries."""


SEARCH = "search"


class Choice(msgspec.Struct, frozen=True, order=True):
    """A model, ``search`` for the priority and local search alone, and a share of the limit."""

    model: str
    share: float

    @property
    def name(self) -> str:
        """The text of a choice in records."""
        return f"{self.model}@{self.share:g}"


CHOICES = tuple(Choice(model, share) for model in (SEARCH, *MODELS) for share in SHARES)

_FORMER = {
    "hcp3": "hcp", "pcp3": "pcp:model=copies", "pcp4": "pcp:model=counts", "pcp5": "pcp:model=boxes"
}  # fmt: skip
"""Names of models in records of earlier versions, and their names now."""


# --------------------------------------------------------------------------------- features


@dataclass(frozen=True, slots=True)
class Features:
    """The features of an instance."""

    jobs: int
    units: int
    """Planned, and their units."""
    nodes: int
    groups: int
    """Of the system."""
    load: float
    """The share of the scarcest resource type that is in use."""
    mix: float
    """Share of the jobs that not every group of nodes can hold."""
    slack: float
    """What is free over what the planned jobs ask for, of the scarcest resource type."""

    @classmethod
    def of(cls, instance: Instance, selection: Selection) -> Features:
        """The features of an instance with these jobs to plan."""
        system = instance.system
        jobs = instance.queue.take(selection.position)
        total = np.maximum(system.total, 1)
        free = instance.free.sum(axis=0)
        demand = jobs.units @ jobs.request
        asked = demand > 0
        capacity = np.array([group.capacity for group in system.groups])
        everywhere = (capacity[:, None, :] >= jobs.request).all(axis=2).all(axis=0)
        return cls(
            len(jobs),
            int(jobs.units.sum()),
            system.nodes,
            len(system.groups),
            float(((system.total - free) / total).max(initial=0.0)),
            float(np.mean(~everywhere)) if len(jobs) else 0.0,
            float((free[asked] / demand[asked]).min(initial=math.inf)),
        )

    @property
    def kind(self) -> str:
        """The kind of instance: how many jobs and nodes, whether nodes differ, how scarce."""
        size = next(text for most, text in _SIZES if self.jobs <= most)
        nodes = "few nodes" if self.nodes <= _FEW_NODES else "many nodes"
        mixed = "mixed" if self.mix > 0 else "uniform"
        scarce = "ample" if self.slack >= 1 else "short" if self.slack >= 1 / 3 else "scarce"
        return f"{size}, {nodes}, {mixed}, {scarce}"


_SIZES = (
    (4, "4 jobs at most"), (12, "5 to 12 jobs"), (40, "13 to 40 jobs"), (math.inf, "over 40 jobs"),
)  # fmt: skip
_FEW_NODES = 200


# ----------------------------------------------------------------------------------- records


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    kinds: dict[str, dict[str, tuple[float, float]]]


@dataclass(slots=True)
class Record:
    """Tries and mean reward of each choice for each kind of instance."""

    kinds: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Read a record's file.

        Raises
        ------
        InputError
            When it cannot be read, or is no record.
        """
        file = parse_json(read_text(path), _File, "a record of hyper", path, FORMAT)
        kinds = {
            kind: {_renamed(name): known for name, known in choices.items()}
            for kind, choices in file.kinds.items()
        }
        names = {choice.name for choice in CHOICES}
        for kind, choices in kinds.items():
            for name, (tries, mean) in choices.items():
                where = f"kinds.{kind}.{name}"
                if name not in names:
                    raise InputError("is not a choice of hyper", file=path, field=where, value=name)
                if not (tries >= 0 and math.isfinite(tries) and math.isfinite(mean)):
                    raise InputError(
                        "needs tries, 0 or more, and a mean", file=path, field=where,
                        value=[tries, mean],
                    )  # fmt: skip
        return cls(kinds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a file."""
        content = msgspec.json.encode(_File(FORMAT, self.kinds), order="sorted")
        write_bytes(path, msgspec.json.format(content, indent=1) + b"\n")

    def learn(self, kind: str, choice: Choice, reward: float) -> None:
        """Add the reward of a choice."""
        tries, mean = self.kinds.setdefault(kind, {}).get(choice.name, (0.0, 0.0))
        self.kinds[kind][choice.name] = (tries + 1, mean + (reward - mean) / (tries + 1))

    def score(self, kind: str, choice: Choice) -> float:
        """Mean reward plus a bonus for uncertainty; infinite for a choice that was never tried."""
        known = self.kinds.get(kind, {})
        tries, mean = known.get(choice.name, (0.0, 0.0))
        if tries == 0:
            return math.inf
        total = sum(count for count, _ in known.values())
        return mean + CURIOSITY * math.sqrt(math.log(max(total, 2.0)) / tries)

    def best(self, kind: str) -> Choice:
        """The choice with the highest score, the first of equals."""
        return max(CHOICES, key=lambda choice: self.score(kind, choice))


def _renamed(choice: str) -> str:
    """The name of a choice, where a record has that of an earlier version."""
    model, at, share = choice.partition("@")
    return _FORMER.get(model, model) + at + share


@functools.cache
def _shipped() -> bytes:
    return (Path(__file__).parent / "hyper_prior.json").read_bytes()


def prior() -> Record:
    """The record that the package ships with, with few enough tries to be unlearned."""
    kinds = msgspec.json.decode(_shipped(), type=_File).kinds
    return Record(
        {
            kind: {name: (min(tries, PRIOR_TRIES), mean) for name, (tries, mean) in choices.items()}
            for kind, choices in kinds.items()
        }
    )


# -------------------------------------------------------------------------------- the dispatcher


@dataclass(frozen=True, slots=True)
class Hyper:
    """Lets the engine use the model that has served best on such instances, and learns."""

    limit_s: float = 1.0
    """Budget of a decision, seconds."""
    seed: int = 0
    file: str = ""
    """A record to go on from, if it exists, and to save to what each decision teaches."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to `Engine`."""
    name: str = "hyper"
    """Name in tables."""
    record: Record = field(default_factory=prior, repr=False, compare=False)
    faults: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """See `Engine`."""

    keeps_starvation_bound: ClassVar[bool] = True
    takes_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.file and Path(self.file).exists():
            object.__setattr__(self, "record", Record.load(self.file))
        elif self.file:
            self.save()  # what cannot be written is told before a run

    @property
    def test_s(self) -> int:
        """How long a test run lasts; 0 for none."""
        return int(self.settings.get("test_s", 0))

    def engine(self, choice: Choice) -> Engine:
        """The engine that a choice stands for."""
        cp = choice.model != SEARCH
        limit_s = max(self.limit_s * choice.share, min(self.limit_s, LEAST_S))
        settings = {"limit_s": limit_s, "seed": self.seed, "faults": self.faults, **self.settings}
        return Engine(choice.model if cp else "pcp:model=copies", cp=cp, **settings)

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile all that decisions call, or load it from the cache; start the solver."""
        for model in {choice.model for choice in CHOICES} - {SEARCH}:
            warm_up(model)
            if have_stopped(instances):
                warm_up_stopped(model)

    @no_collection()
    def dispatch(self, instance: Instance) -> Decision:
        """Choose a model, let it decide, and learn from its result."""
        return self.dispatch_since(instance, perf_counter())

    def dispatch_since(self, instance: Instance, began: float) -> Decision:
        """Decide as `dispatch` does; the time since ``began``, of `perf_counter`, is used up."""
        chosen_from = perf_counter()
        instance = self.engine(CHOICES[0]).planned(instance)
        features = Features.of(instance, self.engine(CHOICES[0]).select(instance))
        choice = self.record.best(features.kind)
        engine = self.engine(choice)
        # The clock has the whole limit: a slow machine must not change what a share of it buys.
        limit_s = engine.limit_s if engine.live else max(self.limit_s, engine.limit_s)
        budget = Budget(limit_s - (perf_counter() - began), engine.live, engine.limit_s)
        budget.phases_ms["choose"] = (perf_counter() - chosen_from) * 1e3
        answers = engine.answers(instance, budget)
        if any(answer.worked for answer in answers):
            reward = gain(answers) - PRICE * min(budget.spent_s / self.limit_s, 1.0)
            self.record.learn(features.kind, choice, reward)
            if self.file:
                self.save()
        return engine.decision(instance, answers, budget)

    def save(self) -> None:
        """Write what was learned to the file."""
        self.record.save(self.file)

    def explain(self, instance: Instance) -> dict[str, Any]:
        """Features, kind, and each choice's tries, mean reward and score; and the choice."""
        instance = self.engine(CHOICES[0]).planned(instance)
        features = Features.of(instance, self.engine(CHOICES[0]).select(instance))
        known = self.record.kinds.get(features.kind, {})
        return {
            "features": asdict(features),
            "kind": features.kind,
            "choice": self.record.best(features.kind).name,
            "choices": {
                choice.name: {
                    "tries": known.get(choice.name, (0.0, 0.0))[0],
                    "reward": known.get(choice.name, (0.0, 0.0))[1],
                    "score": self.record.score(features.kind, choice),
                }
                for choice in CHOICES
            },
        }


def gain(answers: list[Answer]) -> float:
    """The share of the wait above the lower bound that was saved after the first plan.

    What jobs cost that there was no time to place is not known: their parts do not count.
    """
    whole = [answer for answer in answers if answer.complete]
    saved = sum(answer.first - answer.last for answer in whole)
    above = sum(max(answer.first - answer.bound, 0.0) for answer in whole)
    return saved / above if above > 0 else 0.0


def make_hyper(**settings: Any) -> Hyper:
    """The dispatcher; ``record`` is its file, the rest as for `Hyper` and `Engine`."""
    own = {key: settings.pop(key) for key in ("limit_s", "seed") if key in settings}
    return Hyper(**own, file=settings.pop("record", ""), settings=settings)
