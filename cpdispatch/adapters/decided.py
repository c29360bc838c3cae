"""What a dispatcher decides for a system that is not simulated here: nothing that is infeasible."""

from __future__ import annotations

from cpdispatch import dispatch, own, verify
from cpdispatch.decision import Decision
from cpdispatch.dispatch import Dispatcher
from cpdispatch.errors import infeasible
from cpdispatch.instance import Instance


def decided(dispatcher: Dispatcher, instance: Instance) -> Decision:
    """The decision of a dispatcher, verified.

    Raises
    ------
    DecisionError
        When it is none, or infeasible.
    """
    decision = dispatch.answer_of(dispatcher, instance)
    violations = verify.decision(instance, decision, stated=own.is_ours(dispatcher))
    if violations:
        raise infeasible(dispatcher.name, instance.now, violations[0])
    return decision
