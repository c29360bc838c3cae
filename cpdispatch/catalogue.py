"""What can be named on the command line, with a line about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def _dispatchers() -> dict[str, str]:
    from cpdispatch.dispatch import REGISTRY

    return {name: _with_parameters(e.summary, e.parameters) for name, e in REGISTRY.items()}


def _models() -> dict[str, str]:
    from cpdispatch.dispatch import REGISTRY

    return {
        name: entry.summary for name, entry in REGISTRY.items() if "objective" in entry.parameters
    }


def _policies() -> dict[str, str]:
    from cpdispatch.heuristics.policies import SUMMARIES

    return dict(SUMMARIES)


def _predictors() -> dict[str, str]:
    from cpdispatch.predict import PREDICTORS

    return {name: _with_parameters(e.summary, e.parameters) for name, e in PREDICTORS.items()}


def _with_parameters(summary: str, parameters: Iterable[str]) -> str:
    names = ", ".join(parameters)
    return f"{summary} [{names}]" if names else summary


def _systems() -> dict[str, str]:
    from cpdispatch.system import NAMED

    def describe(name: str) -> str:
        system = NAMED[name]
        parts = []
        for group in system.groups:
            has = [f"{c} {r}" for c, r in zip(group.capacity, system.resources, strict=True) if c]
            parts.append(f"{group.nodes:,} x ({', '.join(has)})")
        return "; ".join(parts)

    return {name: describe(name) for name in NAMED}


_LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "dispatchers": _dispatchers,
    "models": _models,
    "policies": _policies,
    "predictors": _predictors,
    "systems": _systems,
}


def catalogue(what: str) -> dict[str, str]:
    """Names and descriptions of one kind of thing, a key of the lists above."""
    return _LISTS[what]()
