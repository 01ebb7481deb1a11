// What the open execution does now, and the button that asks it to stop: on the overview, and on the execution's own page.
// Reads the executions that the chart of the overview marks.
import { el, put } from "./elements.js";
import { views } from "./views.js";
import { EXECUTIONS_MARKED, markExecutions } from "./overview.js";
import { actPlace, offerOnView } from "./acting.js";

const place = actPlace(document.getElementById("execution-abort"));

function now(execution) {
  return [el("p", { class: "line" }, el("span", { class: "soft" }, "Now: "), execution.detail),
    execution.throttle_bytes_per_sec ? null : el("p", { class: "line soft" }, "No throttle is set.")];
}
const abort = execution => execution.ended_ms === null && execution.event !== "abort_requested" ? {
  id: execution.execution_id, about: `execution ${execution.execution_id}`, verb: "abort", typed: "abort", path: `api/v1/executions/${encodeURIComponent(execution.execution_id)}/abort`, closed: () => {},
  ask: `This stops execution ${execution.execution_id}: moves under way are cancelled, those that are done stay.`,
} : null;
let marked = "";
// Read again only where an execution has begun or ended; what was refused is not asked again.
async function mark(execution) {
  const now = execution ? JSON.stringify([execution.execution_id, execution.started_ms, execution.ended_ms]) : "";
  if (now === marked) return;
  marked = now;
  try {
    const rows = now ? (await views.read("executions", { limit: EXECUTIONS_MARKED })).items : [];
    if (now === marked) markExecutions(rows);
  } catch (problem) { if (now === marked && !problem.status) marked = ""; }
}
document.addEventListener("status", event => {
  mark(event.detail && event.detail.control.execution);
  const execution = event.detail && event.detail.control.execution, isOpen = Boolean(execution) && execution.ended_ms === null;
  put("execution-now", ...(isOpen ? now(execution) : []));
  place.offer(isOpen ? abort(execution) : null);
});
document.addEventListener("execution", event => offerOnView(abort(event.detail)));
