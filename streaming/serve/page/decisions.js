// The page of decisions (#decisions): each window's verdict with its reason, the newest first. A verdict leads to what the
// planner saw.
import { count, ratio, words } from "./units.js";
import { el, hash, none, planLink, table } from "./elements.js";
import { resources } from "./resources.js";
import { views } from "./views.js";

const kind = row => row.verdict === "plan" ? "bad" : row.reason === "balanced" ? "good" : "warn";
const skews = row => Object.entries(row.skew).map(([name, figures]) => `${resources.words(name)} ${ratio(figures.max_over_mean)}`).join(", ");

async function read(where) {
  const { from, to } = where, page = await views.read("decisions", { from, to, limit: 25, cursor: where.cursor });
  const form = views.form(where, ["from", "From", "datetime-local"], ["to", "To", "datetime-local"]);
  if (!page.items.length) return [form, none(from || to ? "No decision in this time." : "No decision yet: control decides at each closed window.")];
  const rows = page.items.map(row => [views.when(row.decided_ms), el("a", { href: hash("decision", row.decision_id), title: "What the planner saw" }, el("span", { class: `badge ${kind(row)}` }, row.verdict === "plan" ? "plan" : words(row.reason))),
    [row.detail, "why"], [row.resource ? resources.words(row.resource) : "–", "less"], [el("span", { title: skews(row) }, ratio(row.max_over_mean)), "num"],
    [`${count(row.brokers_reporting)} of ${count(row.brokers_expected)}`, "num less"], [row.mode, "less"],
    row.plan_id ? planLink(row.plan_id) : "–"]);
  return [form, views.scroll("Decisions",
    table(["decided", "verdict", "reason", ["resource", "less"], ["max/mean", "num"], ["brokers reported", "num less"], ["mode", "less"], "plan"], rows)), views.pager(where, page.next_cursor)];
}
views.add("decisions", { title: () => "Decisions, newest first", read });
