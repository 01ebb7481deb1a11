"""Which modules are mutated, and the pure tests that should notice: the quickest that cover all of a module.

The worked examples of the docstrings and the limits that the documentation names are asked of every module.
"""

_ALL = "core/test_worked_examples core/test_documented_limits"
_TESTS = {
    "execution/accounting": "core/test_accounting core/test_refusals control/test_admin_answers",
    "execution/adaptive_rates": "core/test_accounting",
    "execution/caution": "core/test_caution core/test_accounting",
    "execution/events": "core/test_life_cycle test_execution_rows",
    "execution/life_cycle": "core/test_life_cycle test_execution_rows",
    "execution/progress": (
        "core/test_reconcile core/test_progress core/test_refusals core/test_staging control/test_cluster_snapshot"
    ),
    "execution/reconcile": (
        "core/test_reconcile core/test_progress core/test_refusals core/test_staging control/test_policies"
    ),
    "execution/room": "core/test_disks core/test_reconcile",
    "execution/within_brokers": "core/test_within_brokers control/test_movements_within_brokers",
    "deciding/gates": "core/test_observed_windows control/test_deciding core/test_step core/test_futile",
    "load_history/load_memory": "core/test_load_memory",
    "maintenance": "core/test_maintenance",
    "deciding/needs": "core/test_lasting core/test_log_dir_decisions core/test_trigger control/test_policies",
    "deciding/observation": "core/test_step core/test_observed_windows control/test_policies",
    "deciding/plan_requests": (
        "core/test_lasting core/test_step core/test_planning_model core/test_plan_requests core/test_futile"
    ),
    "deciding/policy": (
        "core/test_plan_requests core/test_step core/test_lasting core/test_observed_windows control/test_policies "
        "core/test_trigger"
    ),
    "deciding/reasons": "core/test_trigger core/test_lasting core/test_plan_requests",
    "load_history/recurring": "core/test_recurring",
    "deciding/skewed": "core/test_load_memory core/test_trigger core/test_recurring control/test_policies",
    "deciding/state": (
        "core/test_futile core/test_observed_windows control/test_deciding core/test_lasting "
        "core/test_trigger control/test_policies"
    ),
    "deciding/step": "core/test_step core/test_futile",
    "deciding/waiting": "core/test_step core/test_futile",
    "load_history/windows": "core/test_observed_windows core/test_trigger",
    "live_plans/measured_loads": "core/test_planning core/test_hours",
    "live_plans/planning": "core/test_planning_model core/test_worst_hour",
    "live_plans/tiered_logs": "core/test_planning_model",
    "disks": "core/test_disks",
    "live": "core/test_live core/test_disks core/test_reconcile",
    "placement": "core/test_placement",
    "plan": "core/test_plan",
    "planner/balance": "core/planner/test_rounds core/planner/test_examples",
    "planner/frontier": "core/planner/test_frontier",
    "planner/hopeless": "core/planner/test_hopeless",
    "planner/placement": "core/planner/test_placement",
    "planner/rounds": "core/planner/test_rounds",
    "price": "core/test_price",
    "skew": "core/test_load_skew",
}
_OF_CONTROL = {
    "absences": "control/test_absences",
    "cluster_snapshot": "control/test_snapshot_age control/test_cluster_snapshot",
}
TESTS = {
    f"assignor_core/{module}.py": tuple(f"tests/{name}.py" for name in f"{names} {_ALL}".split())
    for module, names in _TESTS.items()
} | {
    f"streaming/control/{module}.py": tuple(f"tests/{name}.py" for name in names.split())
    for module, names in _OF_CONTROL.items()
}
