"""What arrives after the end of movements within brokers: copies that a broker began late, rates that it took late."""

from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.refusals import NAMED_MAX
from assignor_core.execution.stranded import may_go_on
from assignor_core.execution.within_brokers import Missed, cancellations, going_back, moving_within, standing_of
from assignor_core.live import ReplicaKey, replica_name
from assignor_core.plan import Plan
from assignor_core.throttles import is_tagged
from assignor_core.wording import counted, first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.log_dir_requests import LogDirRequests
from streaming.control.look_age import LookAge

LOOKS_MAX = 3
"""At log dirs, until one shows no copy that is to be given up."""


def take_back(
    cluster: ControlledCluster, look_age: LookAge, execution: Execution, plan: Plan, requests: LogDirRequests
) -> list[str]:
    """Let brokers give up the copies of an execution that has ended, and remove its rates; a broker that copies keeps
    its rate until the next look. Returns what was done, in words. `requests` are those of all looks after this
    execution.
    """
    copying, _ = give_up(cluster, look_age, plan, requests)
    done = []
    if copying:
        given_up = sorted(requests.cancelled & copying)
        done.append(
            f"{counted(len(given_up), 'movement', 'movements')} given up: "
            f"{first_named(given_up, NAMED_MAX, replica_name)}"
        )
    ours = paid_back(execution)
    rates = cluster.log_dir_rates(ours) if ours else {}
    late = sorted({row for row, rate in rates.items() if is_tagged(rate)} - {broker for broker, _ in copying})
    if late:
        cluster.clear_log_dir_rates(late)
        done.append(f"rate removed from brokers {late}")
    return done


def paid_back(execution: Execution) -> frozenset[int]:
    """Brokers that had the throttle of an execution and owe nothing of it any more."""
    events = (event.figures.throttled_brokers or () for event in execution.events)
    return frozenset(broker for brokers in events for broker in brokers) - set(execution.throttled_brokers)


def give_up(
    cluster: ControlledCluster, look_age: LookAge, plan: Plan, requests: LogDirRequests
) -> tuple[frozenset[ReplicaKey], dict[ReplicaKey, str]]:
    """Let brokers give up the copies of a plan whose execution has ended. Returns what was being copied, and what may
    go on all the same, with the reason.

    A copy may end just before the request to give it up, which then asks for a copy back: the next look shows that, and
    it is given up, too.
    """
    copying: frozenset[ReplicaKey] = frozenset()
    for _ in range(LOOKS_MAX):
        look_age.begin()
        log_dirs = cluster.log_dirs(plan.brokers, [row.key for row in plan.log_dir_movements])
        back = [replica for replica in going_back(plan, log_dirs) if replica in requests.asked_to_stay]
        places = cancellations(plan, [*moving_within(standing_of(plan, log_dirs, Missed())), *back], log_dirs)
        if not places:
            return copying, may_go_on(plan, log_dirs)
        copying |= places.keys()
        refused = requests.cancel(places, ())
    return copying, may_go_on(plan, log_dirs) | dict.fromkeys(places, "not shown as given up") | dict(refused)
