"""Makes the record that hyper ships with: what every choice brought on instances of the corpus.

python benchmarks/hyper_prior.py instances --limit 0.3 --out cpdispatch/models/hyper_prior.json
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import script

from cpdispatch.instance import load
from cpdispatch.models.budget import Budget
from cpdispatch.models.hyper import CHOICES, PRICE, Features, Hyper, Record, gain, make_hyper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=script.folder)
    parser.add_argument("--limit", type=float, default=0.3, help="time limit, seconds")
    parser.add_argument("--sample", type=script.count, help="instances; all by default")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    files = script.instances(given.folder)
    make_hyper()
    if given.sample:
        files = sorted(random.Random(0).sample(files, given.sample))
    record = Record()
    for k, path in enumerate(files):
        print(f"\r{k + 1} / {len(files)} {path.name:40}", end="", file=sys.stderr)
        try_all(record, path, given.limit)
        record.save(given.out)
    print(file=sys.stderr)


def try_all(record: Record, path: Path, limit_s: float) -> None:
    """Let every choice answer an instance."""
    instance = load(path)
    hyper = Hyper(limit_s, record=record, settings={"patience": 0.3})
    instance = hyper.engine(CHOICES[0]).planned(instance)
    features = Features.of(instance, hyper.engine(CHOICES[0]).select(instance))
    for choice in CHOICES:
        engine = hyper.engine(choice)
        budget = Budget(engine.limit_s, engine.live)
        answers = engine.answers(instance, budget)
        if not any(answer.worked for answer in answers):
            continue
        reward = gain(answers) - PRICE * min(budget.spent_s / limit_s, 1.0)
        record.learn(features.kind, choice, reward)


if __name__ == "__main__":
    script.run(__file__)
