// The first page of several clusters: a row for each, the worst first. Its link leads to the page of the cluster.
import { html } from "./lit-html/lit-html.js";
import { VERDICTS, anchor, none, put, table } from "./elements.js";
import { answerOf, ask, timeNow } from "./serve.js";
import "./sign_in.js";
import { ago, capital, count, counted, ratio, words } from "./units.js";

const REFRESH_MS = 5000;
const FAILURES_SHOWN = 2;
const SOUND = ["ok", "unknown"];

const link = (row, text, hash) => anchor(`clusters/${row.kafka_cluster}/${hash || ""}`, text);
function data(row, now) {
  if (row.failures.includes("snapshot")) return html`<span class="bad">serve no longer reads it: see its log</span>`;
  const rest = row.failures.length - FAILURES_SHOWN;
  const shown = row.failures.slice(0, FAILURES_SHOWN).join(", ");
  const more = rest > 0 ? ` and ${rest} more` : "";
  if (shown) return html`<span class="bad" title=${row.failures.join(", ")}>can't be read: ${shown}${more}</span>`;
  const kind = row.mode === "paused" ? "soft" : row.is_stale ? "warn" : "good";
  const text = row.window_end_ms === null ? "no data yet" : `window ended ${ago(row.window_end_ms, now)}`;
  return html`<span class=${kind}>${text}</span>`;
}
// The highest skew of those that make control plan; others are in the title.
function skew(row) {
  const known = Object.entries(row.max_over_mean)
    .filter(([, value]) => value !== null)
    .sort((a, b) => b[1] - a[1]);
  const [name, most] = known.find(([resource]) => row.trigger_resources.includes(resource)) || [];
  if (most === undefined) return none("–");
  const all = known.map(([resource, value]) => `${words(resource)} ${ratio(value)}`).join("\n");
  const kind = most > row.threshold_enter ? "warn" : "good";
  return html`<span class=${kind} title=${all}>${words(name)} ${ratio(most)}</span>`;
}
function groups(row) {
  const bad = Object.entries(row.groups).filter(([status]) => !SOUND.includes(status));
  if (!bad.length) return none(Object.keys(row.groups).length ? "none behind" : "–");
  const worst = row.worst_groups.map(one => {
    const group = link(row, one.group || '""', `#group=${encodeURIComponent(one.group)}`);
    return html`<div><span class=${VERDICTS[one.status] || "bad"} title=${one.why}>${one.status}</span> ${group}</div>`;
  });
  return html`<div><div>${bad.map(([status, number]) => `${number} ${status}`).join(", ")}</div>${worst}</div>`;
}
function decision(row) {
  if (!row.verdict) return none(row.mode === "paused" ? "–" : "no decision yet");
  const kind = row.verdict === "plan" ? "warn" : "soft";
  return html`<div><span class=${kind}>${row.verdict}</span>: ${row.detail}</div>`;
}
function plans(row) {
  const execution = `#execution=${encodeURIComponent(row.execution_id)}`;
  const shown = [
    row.execution_id && link(row, `execution: ${words(row.execution_event)}`, execution),
    row.waiting_plan_id && link(row, "a plan waits for approval", `#plan=${row.waiting_plan_id}`),
  ].filter(Boolean);
  return shown.length ? html`<div>${shown.map(one => html`<div>${one}</div>`)}</div>` : none("–");
}
function brokers(row) {
  if (!row.brokers_unreported) return count(row.brokers);
  return html`<span class="bad">${count(row.brokers)}, ${count(row.brokers_unreported)} without samples</span>`;
}
const columns = now => [
  ["cluster", row => link(row, row.kafka_cluster)],
  ["mode", row => html`<span class=${row.mode === "paused" ? "badge warn" : ""}>${row.mode}</span>`],
  ["data", row => data(row, now)],
  ["brokers", brokers, "num"],
  ["skew, max/mean", skew],
  ["groups", groups],
  ["plan", plans],
  ["last decision", decision, "why"],
];

async function show() {
  try {
    const response = await ask("api/v1/clusters");
    const answer = await answerOf(response);
    if (response.status === 401) return put("clusters", none("Sign in to see the clusters."));
    if (!response.ok) throw new Error(answer.detail);
    const rows = answer.items;
    put("problems");
    put(
      "clusters",
      rows.length ? table(rows, columns(timeNow())) : none("You have a role on no cluster of this deployment."),
    );
    put("age", counted(rows.length, "cluster", "clusters"));
    document.dispatchEvent(new CustomEvent("status"));
  } catch (problem) {
    put("problems", capital(problem.message));
  }
}
document.addEventListener("session", show);
show();
setInterval(() => {
  if (!document.hidden) show();
}, REFRESH_MS);
