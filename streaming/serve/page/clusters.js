// The first page of several clusters: a row for each, the worst first. Its link leads to the page of the cluster.
import { el, none, put, table } from "./elements.js";
import { answerOf, ask, timeNow } from "./serve.js";
import "./sign_in.js";
import { ago, capital, count, counted, ratio } from "./units.js";

const REFRESH_MS = 5000, SOUND = ["ok", "unknown"];

function data(row, now) {
  if (row.failures.length) return el("span", { class: "bad" }, `can't be read: ${row.failures.join(", ")}`);
  return el("span", { class: row.is_stale ? "warn" : "good" }, row.window_end_ms === null ? "no window yet" : `window ended ${ago(row.window_end_ms, now)}`);
}
function skew(row) {
  const known = Object.values(row.max_over_mean).filter(value => value !== null), most = Math.max(...known);
  return known.length ? el("span", { class: most > row.threshold_enter ? "warn" : "good" }, ratio(most)) : none("–");
}
function groups(row) {
  const bad = Object.entries(row.groups).filter(([status]) => !SOUND.includes(status));
  if (!bad.length) return none(Object.keys(row.groups).length ? "none behind" : "–");
  return el("span", { class: "bad", title: row.worst_groups.map(one => `${one.group}: ${one.why}`).join("\n") }, bad.map(([status, number]) => `${number} ${status}`).join(", "));
}
function doing(row) {
  if (row.execution_id) return `execution: ${row.execution_event}`;
  if (row.waiting_plan_id) return el("a", { href: `clusters/${row.kafka_cluster}/#plan=${row.waiting_plan_id}` }, "a plan waits for approval");
  return row.verdict ? `${row.verdict}: ${row.detail}` : none("no decision yet");
}
function brokers(row) {
  return row.brokers_unreported ? el("span", { class: "bad" }, `${count(row.brokers)}, ${count(row.brokers_unreported)} without samples`) : count(row.brokers);
}
async function show() {
  try {
    const response = await ask("api/v1/clusters"), answer = await answerOf(response), now = timeNow();
    if (response.status === 401) return put("clusters", none("Sign in to see the clusters."));
    if (!response.ok) throw new Error(answer.detail);
    const rows = answer.items.map(row => [el("a", { href: `clusters/${row.kafka_cluster}/` }, row.kafka_cluster), row.mode, data(row, now), [brokers(row), "num"], [skew(row), "num"], groups(row), [doing(row), "why"]]);
    put("problems");
    put("clusters", table(["cluster", "mode", "data", ["brokers", "num"], ["skew, max/mean", "num"], "groups", ["now", "why"]], rows));
    put("age", counted(rows.length, "cluster", "clusters"));
    document.dispatchEvent(new CustomEvent("status"));
  } catch (problem) { put("problems", capital(problem.message)); }
}
document.addEventListener("session", show);
show();
setInterval(() => { if (!document.hidden) show(); }, REFRESH_MS);
