// The page of one decision (#decision=ID): what trigger and planner saw at that time.
import { html } from "./lit-html/lit-html.js";
import { anchor, badge, bar, brokerLink, fill, hash, none, planLink, scroll, section } from "./elements.js";
import { PLANNED, resources } from "./resources.js";
import { bytes, changes, count, counted, ratio, share, span, when, words } from "./units.js";
import { views } from "./views.js";

export function verdictOf(row) {
  const kind = row.verdict === "plan" ? "bad" : row.reason === "balanced" ? "good" : "warn";
  return badge(kind, row.verdict === "plan" ? "plan" : words(row.reason));
}
function windowOf(seen) {
  if (seen.window_end_ms === null) return "no closed window";
  const length = seen.window_start_ms === null ? "" : ` of ${span(seen.window_end_ms - seen.window_start_ms)}`;
  return `window${length} until ${when(seen.window_end_ms)}`;
}
function head(seen) {
  const facts = [
    `decided ${when(seen.decided_ms)}`,
    windowOf(seen),
    `mode ${seen.mode}`,
    `${count(seen.brokers_reporting)} of ${counted(seen.brokers_expected, "broker", "brokers")} reported`,
    `skew begins above ${ratio(seen.threshold_enter)} and ends below ${ratio(seen.threshold_exit)}`,
    seen.breached ? `skewed since ${when(seen.breach_started_ms)}` : "not skewed",
    seen.cooldown_end_ms === null ? null : `cooldown until ${when(seen.cooldown_end_ms)}`,
  ];
  return html`<p class="line">${verdictOf(seen)} ${seen.detail}</p>
    <p class="line soft">${facts.filter(Boolean).join(" · ")}</p>`;
}
const over = (seen, value) => html`<span class=${value > seen.threshold_enter ? "bad" : ""}>${ratio(value)}</span>`;
function skew(seen) {
  const decided = name => (name === seen.resource ? ", which decided" : "");
  return section(
    "Skew",
    Object.entries(seen.skew),
    [
      ["resource", ([name]) => resources.words(name) + decided(name)],
      ["max/mean", ([, figures]) => over(seen, figures.max_over_mean), "num"],
      ["variation", ([, figures]) => ratio(figures.coefficient_of_variation), "num"],
    ],
    "The load of no broker was known.",
  );
}
function brokers(seen) {
  const of = seen.resource || resources.main();
  const relative = seen.brokers.map(row => row.relative_load[of] || 0);
  const top = Math.max(seen.threshold_enter || 1, ...relative) * 1.04;
  const load = row =>
    fill(row.relative_load[of] > seen.threshold_enter ? "over" : "main", row.relative_load[of] || 0, top);
  const threshold = html`<b style="left:${share(seen.threshold_enter, top)}"></b>`;
  const counts = name => row =>
    row.is_counted ? over(seen, row.relative_load[name]) : html`<span class="soft">not counted</span>`;
  const shared = resources
    .names()
    .filter(name => seen.brokers.some(row => name in row.load || name in row.relative_load));
  const columns = [
    ["broker", row => brokerLink(row.broker)],
    ["rack", row => row.rack || "–"],
    [`${resources.words(of)} per mean`, row => bar(row.is_counted ? load(row) : null, threshold), "wide"],
    ...shared.flatMap(name => [
      [resources.words(name), row => resources.unit(name)(row.load[name]), "num"],
      ["per mean", counts(name), "num"],
    ]),
  ];
  const expired = "The rows of this window have expired: loads per mean are those that the decision has kept.";
  const left = counted(seen.brokers_left_out, "broker with less load is", "brokers with less load are");
  return [
    section("Brokers in this window, highest load first", seen.brokers, columns, "No broker reported."),
    seen.is_window_kept || !seen.brokers.length ? null : none(expired),
    seen.brokers.length
      ? html`<p class="line soft">The line in each bar is the threshold, ${ratio(seen.threshold_enter)} per mean.</p>`
      : null,
    seen.brokers_left_out ? none(`${left} not shown.`) : null,
  ];
}
function outcome(row) {
  if (!row.is_found) return html`<span class="soft">${row.why ? `no need: ${row.why}` : "no need"}</span>`;
  return row.held_by ? html`<span>${badge("warn", row.held_by)} ${row.why}</span>` : badge("bad", "makes the plan");
}
const why = seen =>
  section(
    "Why, need by need",
    seen.trace,
    [
      ["need", row => words(row.need)],
      ["what it is", row => row.text || "–"],
      ["gates passed", row => row.passed.join(", ") || "–"],
      ["outcome", outcome],
    ],
    "The row of this decision keeps no trace: an earlier version wrote it.",
  );
function plan(seen) {
  if (!seen.plan_id) return html`<h3>Plan</h3>${none("No plan came of it.")}`;
  const made = seen.plan;
  const text = made ? `${changes(made)}; ${bytes(made.bytes_to_move)} to copy` : "has expired.";
  const promised = made ? scroll("What the plan promises", resources.skewTable("max/mean", made, PLANNED)) : null;
  return html`<h3>Plan</h3><p class="line">${planLink(seen.plan_id)} ${text}</p>${promised}`;
}
const earlier = seen =>
  section(
    "Before it, newest first",
    seen.earlier,
    [
      ["decided", row => when(row.decided_ms)],
      ["verdict", row => anchor(hash("decision", row.decision_id), verdictOf(row))],
      ["resource", row => (row.resource ? resources.words(row.resource) : "–")],
      ["max/mean", row => ratio(row.max_over_mean), "num"],
      ["skewed", row => (row.breached ? "yes" : "no")],
      ["plan", row => (row.plan_id ? planLink(row.plan_id) : "–")],
    ],
    "No decision before it is kept.",
  );
async function read(where) {
  const seen = await views.read("decisions/seen", { decision_id: where.value });
  return [head(seen), why(seen), skew(seen), brokers(seen), plan(seen), earlier(seen)];
}
views.add("decision", { title: () => "What the planner saw", read });
