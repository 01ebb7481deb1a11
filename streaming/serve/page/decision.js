// The page of one decision (#decision=ID): what trigger and planner saw at that time.
import { bytes, changes, count, counted, ratio, share, span, words } from "./units.js";
import { el, hash, link, none, planLink, table } from "./elements.js";
import { resources } from "./resources.js";
import { views } from "./views.js";

const kind = row => row.verdict === "plan" ? "bad" : row.reason === "balanced" ? "good" : "warn";
const badge = row => el("span", { class: `badge ${kind(row)}` }, row.verdict === "plan" ? "plan" : words(row.reason));

function head(seen) {
  const window = seen.window_start_ms === null ? `window until ${views.when(seen.window_end_ms)}` : `window of ${span(seen.window_end_ms - seen.window_start_ms)} until ${views.when(seen.window_end_ms)}`;
  const facts = [`decided ${views.when(seen.decided_ms)}`, seen.window_end_ms === null ? "no closed window" : window, `mode ${seen.mode}`,
    `${count(seen.brokers_reporting)} of ${counted(seen.brokers_expected, "broker", "brokers")} reported`,
    `skew begins above ${ratio(seen.threshold_enter)} and ends below ${ratio(seen.threshold_exit)}`,
    seen.breached ? `skewed since ${views.when(seen.breach_started_ms)}` : "not skewed", seen.cooldown_end_ms === null ? null : `cooldown until ${views.when(seen.cooldown_end_ms)}`];
  return [el("p", { class: "line" }, badge(seen), ` ${seen.detail}`), el("p", { class: "line soft" }, facts.filter(Boolean).join(" · "))];
}
const over = (seen, value) => el("span", { class: value > seen.threshold_enter ? "bad" : "" }, ratio(value));
function skew(seen) {
  const rows = Object.entries(seen.skew).map(([name, figures]) => [resources.words(name) + (name === seen.resource ? ", which decided" : ""),
    [over(seen, figures.max_over_mean), "num"], [ratio(figures.coefficient_of_variation), "num"]]);
  return [el("h3", {}, "Skew"), rows.length ? views.scroll("Skew", table(["resource", ["max/mean", "num"], ["variation", "num"]], rows)) : none("The load of no broker was known.")];
}
function brokers(seen) {
  const of = seen.resource || resources.main(), shared = resources.names().filter(name => seen.brokers.some(row => name in row.load || name in row.relative_load));
  const top = Math.max(seen.threshold_enter || 1, ...seen.brokers.map(row => row.relative_load[of] || 0)) * 1.04;
  const bar = row => el("div", { class: "bar" },
    row.is_counted ? el("i", { class: row.relative_load[of] > seen.threshold_enter ? "over" : "main", style: `width:${share(row.relative_load[of] || 0, top)}` }) : null,
    el("b", { style: `left:${share(seen.threshold_enter, top)}` }));
  const rows = seen.brokers.map(row => [link(`${row.broker}`, "broker", `${row.broker}`), row.rack || "–", [bar(row), "wide"], ...shared.flatMap(name =>
    [[resources.unit(name)(row.load[name]), "num"], [row.is_counted ? over(seen, row.relative_load[name]) : el("span", { class: "soft" }, "not counted"), "num"]])]);
  return [el("h3", {}, "Brokers in this window, highest load first"),
    seen.is_window_kept || !rows.length ? null : none("The rows of this window have expired: loads per mean are those that the decision has kept."),
    rows.length ? views.scroll("Brokers", table(["broker", "rack", `${resources.words(of)} per mean`, ...shared.flatMap(name => [[resources.words(name), "num"], ["per mean", "num"]])], rows)) : none("No broker reported."),
    rows.length ? el("p", { class: "line soft" }, `The line in each bar is the threshold, ${ratio(seen.threshold_enter)} per mean.`) : null,
    seen.brokers_left_out ? none(`${counted(seen.brokers_left_out, "broker with less load is", "brokers with less load are")} not shown.`) : null];
}
function why(seen) {
  const outcome = row => !row.is_found ? el("span", { class: "soft" }, row.why ? `no need: ${row.why}` : "no need") :
    row.held_by ? el("span", {}, el("span", { class: "badge warn" }, row.held_by), ` ${row.why}`) : el("span", { class: "badge bad" }, "makes the plan");
  const rows = seen.trace.map(row => [words(row.need), row.text || "–", row.passed.join(", ") || "–", outcome(row)]);
  return [el("h3", {}, "Why, need by need"), rows.length ? views.scroll("Why", table(["need", "what it is", "gates passed", "outcome"], rows)) : none("The row of this decision keeps no trace: an earlier version wrote it.")];
}
function plan(seen) {
  if (!seen.plan_id) return [el("h3", {}, "Plan"), none("No plan came of it.")];
  const made = seen.plan, figures = made && `${changes(made)}; ${bytes(made.bytes_to_move)} to copy`;
  return [el("h3", {}, "Plan"), el("p", { class: "line" }, planLink(seen.plan_id), made ? ` ${figures}` : " has expired."),
    made ? views.scroll("What the plan promises", table(["max/mean", ["before", "num"], ["planned", "num"], ["best possible", "num"]],
      views.skew(made, ["max_over_mean_before", "max_over_mean_after", "lower_bound"]))) : null];
}
function earlier(seen) {
  const rows = seen.earlier.map(row => [views.when(row.decided_ms), el("a", { href: hash("decision", row.decision_id) }, badge(row)), row.resource ? resources.words(row.resource) : "–",
    [ratio(row.max_over_mean), "num"], row.breached ? "yes" : "no", row.plan_id ? planLink(row.plan_id) : "–"]);
  return [el("h3", {}, "Before it, newest first"), rows.length ? views.scroll("Before it",
    table(["decided", "verdict", "resource", ["max/mean", "num"], "skewed", "plan"], rows)) : none("No decision before it is kept.")];
}
async function read(where) {
  const seen = await views.read("decisions/seen", { decision_id: where.value });
  return [...head(seen), ...why(seen), ...skew(seen), ...brokers(seen), ...plan(seen), ...earlier(seen)].filter(Boolean);
}
views.add("decision", { title: () => "What the planner saw", read });
