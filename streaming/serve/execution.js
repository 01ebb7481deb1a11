"use strict";
// What the open execution does now, and the button that asks it to stop. Uses `el`, `put`, `count`, `bytes` of the page.
(() => {
  const place = actPlace(document.getElementById("execution-abort"));

  function now(execution) {
    const words = `${count(execution.movements_done)} of ${count(execution.movements_total)} movements`;
    const bar = el("progress", { max: Math.max(1, execution.movements_total), value: execution.movements_done, "aria-label": "Movements done" }, words);
    const left = Math.max(0, execution.bytes_total - execution.bytes_moved);
    return [el("p", { class: "line" }, bar, ` ${words}, ${bytes(left)} left to copy`),
      el("p", { class: "line" }, el("span", { class: "soft" }, "Now: "), execution.detail),
      execution.throttle_bytes_per_sec ? null : el("p", { class: "line soft" }, "No throttle is set.")];
  }
  document.addEventListener("status", event => {
    const execution = event.detail && event.detail.control.execution, isOpen = Boolean(execution) && execution.ended_ms === null;
    put("execution-now", ...(isOpen ? now(execution) : []));
    place.offer(isOpen && execution.event !== "abort_requested" ? {
      id: execution.execution_id, verb: "abort", typed: "abort", path: `api/v1/executions/${encodeURIComponent(execution.execution_id)}/abort`, closed: () => {},
      ask: `This stops execution ${execution.execution_id}: moves under way are cancelled, those that are done stay.`,
    } : null);
  });
})();
