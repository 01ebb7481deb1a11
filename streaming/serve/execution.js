"use strict";
// What the open execution does now, and the button that asks it to stop: on the overview, and on the execution's own page.
// Uses `el`, `put`, `count`, `bytes` of the page, and `views`.
(() => {
  const place = actPlace(document.getElementById("execution-abort")), box = document.getElementById("view-act"), there = actPlace(box);

  function now(execution) {
    return [el("p", { class: "line" }, el("span", { class: "soft" }, "Now: "), execution.detail),
      execution.throttle_bytes_per_sec ? null : el("p", { class: "line soft" }, "No throttle is set.")];
  }
  const abort = execution => execution.ended_ms === null && execution.event !== "abort_requested" ? {
    id: execution.execution_id, about: `execution ${execution.execution_id}`, verb: "abort", typed: "abort", path: `api/v1/executions/${encodeURIComponent(execution.execution_id)}/abort`, closed: () => {},
    ask: `This stops execution ${execution.execution_id}: moves under way are cancelled, those that are done stay.`,
  } : null;
  document.addEventListener("status", event => {
    const execution = event.detail && event.detail.control.execution, isOpen = Boolean(execution) && execution.ended_ms === null;
    put("execution-now", ...(isOpen ? now(execution) : []));
    place.offer(isOpen ? abort(execution) : null);
  });
  document.addEventListener("execution", event => {
    box.hidden = false;
    there.offer(abort(event.detail));
  });
  window.addEventListener("hashchange", () => { box.hidden = true; there.forget(); });
})();
