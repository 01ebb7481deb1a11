// What the open execution does now, and the button that asks it to stop: on the overview, and on the execution's own
// page. Reads the executions that the chart of the overview marks.
import { html } from "./lit-html/lit-html.js";
import { actPlace, offerOnView } from "./acting.js";
import { put } from "./elements.js";
import { EXECUTIONS_MARKED, markExecutions } from "./overview.js";
import { views } from "./views.js";

const place = actPlace(document.getElementById("execution-abort"));

const now = execution => html`<p class="line"><span class="soft">Now: </span>${execution.detail}</p>
  ${execution.throttle_bytes_per_sec ? null : html`<p class="line soft">No throttle is set.</p>`}`;
function abort(execution) {
  const id = execution.execution_id;
  if (execution.ended_ms !== null || execution.event === "abort_requested") return null;
  return {
    id,
    about: `execution ${id}`,
    verb: "abort",
    typed: "abort",
    path: `api/v1/executions/${encodeURIComponent(id)}/abort`,
    ask: `This stops execution ${id}: moves under way are cancelled, those that are done stay.`,
  };
}
let marked = "";
// Read again only where an execution has begun or ended; what was refused is not asked again.
async function mark(execution) {
  const now = execution ? JSON.stringify([execution.execution_id, execution.started_ms, execution.ended_ms]) : "";
  if (now === marked) return;
  marked = now;
  try {
    const rows = now ? (await views.read("executions", { limit: EXECUTIONS_MARKED })).items : [];
    if (now === marked) markExecutions(rows);
  } catch (problem) {
    if (now === marked && !problem.status) marked = "";
  }
}
document.addEventListener("status", event => {
  const execution = event.detail && event.detail.control.execution;
  const isOpen = Boolean(execution) && execution.ended_ms === null;
  mark(execution);
  put("execution-now", isOpen ? now(execution) : null);
  place.offer(isOpen ? abort(execution) : null);
});
document.addEventListener("execution", event => offerOnView(abort(event.detail)));
