// The first page of several clusters: a row for each, the worst first. Its link leads to the page of the cluster.
import { VERDICTS, el, none, put, table } from "./elements.js";
import { answerOf, ask, timeNow } from "./serve.js";
import "./sign_in.js";
import { ago, capital, count, counted, ratio, words } from "./units.js";

const REFRESH_MS = 5000, FAILURES_SHOWN = 2, SOUND = ["ok", "unknown"];

const line = (...parts) => el("div", {}, ...parts);
const link = (row, text, hash) => el("a", { href: `clusters/${row.kafka_cluster}/${hash || ""}` }, text);
function data(row, now) {
  if (row.failures.includes("snapshot")) return el("span", { class: "bad" }, "serve no longer reads it: see its log");
  const rest = row.failures.length - FAILURES_SHOWN, shown = row.failures.slice(0, FAILURES_SHOWN).join(", ");
  if (shown) return el("span", { class: "bad", title: row.failures.join(", ") }, `can't be read: ${shown}${rest > 0 ? ` and ${rest} more` : ""}`);
  const text = row.window_end_ms === null ? "no data yet" : `window ended ${ago(row.window_end_ms, now)}`;
  return el("span", { class: row.mode === "paused" ? "soft" : row.is_stale ? "warn" : "good" }, text);
}
// The highest skew of those that make control plan; others are in the title.
function skew(row) {
  const known = Object.entries(row.max_over_mean).filter(([, value]) => value !== null).sort((a, b) => b[1] - a[1]);
  const [name, most] = known.find(([resource]) => row.trigger_resources.includes(resource)) || [];
  if (most === undefined) return none("–");
  const all = known.map(([resource, value]) => `${words(resource)} ${ratio(value)}`).join("\n");
  return el("span", { class: most > row.threshold_enter ? "warn" : "good", title: all }, `${words(name)} ${ratio(most)}`);
}
function groups(row) {
  const bad = Object.entries(row.groups).filter(([status]) => !SOUND.includes(status));
  if (!bad.length) return none(Object.keys(row.groups).length ? "none behind" : "–");
  return line(line(bad.map(([status, number]) => `${number} ${status}`).join(", ")), ...row.worst_groups.map(one =>
    line(el("span", { class: VERDICTS[one.status] || "bad", title: one.why }, one.status), " ", link(row, one.group || '""', `#group=${encodeURIComponent(one.group)}`))));
}
function decision(row) {
  if (!row.verdict) return none(row.mode === "paused" ? "–" : "no decision yet");
  return line(el("span", { class: row.verdict === "plan" ? "warn" : "soft" }, row.verdict), `: ${row.detail}`);
}
function plans(row) {
  const shown = [row.execution_id && line(link(row, `execution: ${words(row.execution_event)}`, `#execution=${encodeURIComponent(row.execution_id)}`)),
    row.waiting_plan_id && line(link(row, "a plan waits for approval", `#plan=${row.waiting_plan_id}`))].filter(Boolean);
  return shown.length ? line(...shown) : none("–");
}
function brokers(row) {
  return row.brokers_unreported ? el("span", { class: "bad" }, `${count(row.brokers)}, ${count(row.brokers_unreported)} without samples`) : count(row.brokers);
}
const mode = row => el("span", row.mode === "paused" ? { class: "badge warn" } : {}, row.mode);
async function show() {
  try {
    const response = await ask("api/v1/clusters"), answer = await answerOf(response), now = timeNow();
    if (response.status === 401) return put("clusters", none("Sign in to see the clusters."));
    if (!response.ok) throw new Error(answer.detail);
    const rows = answer.items.map(row => [link(row, row.kafka_cluster), mode(row), data(row, now), [brokers(row), "num"], skew(row), groups(row), plans(row), [decision(row), "why"]]);
    put("problems");
    put("clusters", rows.length ? table(["cluster", "mode", "data", ["brokers", "num"], "skew, max/mean", "groups", "plan", ["last decision", "why"]], rows)
      : none("You have a role on no cluster of this deployment."));
    put("age", counted(rows.length, "cluster", "clusters"));
    document.dispatchEvent(new CustomEvent("status"));
  } catch (problem) { put("problems", capital(problem.message)); }
}
document.addEventListener("session", show);
show();
setInterval(() => { if (!document.hidden) show(); }, REFRESH_MS);
