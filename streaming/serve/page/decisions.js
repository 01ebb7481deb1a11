// The page of decisions (#decisions): each window's verdict with its reason, the newest first. A verdict leads to what
// the planner saw.
import { html } from "./lit-html/lit-html.js";
import { verdictOf } from "./decision.js";
import { anchor, hash, none, planLink, scroll, table } from "./elements.js";
import { resources } from "./resources.js";
import { count, ratio, when } from "./units.js";
import { views } from "./views.js";

function skews(row) {
  const each = Object.entries(row.skew).map(
    ([name, figures]) => `${resources.words(name)} ${ratio(figures.max_over_mean)}`,
  );
  return each.join(", ");
}
const COLUMNS = [
  ["decided", row => when(row.decided_ms)],
  ["verdict", row => anchor(hash("decision", row.decision_id), verdictOf(row), { title: "What the planner saw" })],
  ["reason", row => row.detail, "why"],
  ["resource", row => (row.resource ? resources.words(row.resource) : "–"), "less"],
  ["max/mean", row => html`<span title=${skews(row)}>${ratio(row.max_over_mean)}</span>`, "num"],
  ["brokers reported", row => `${count(row.brokers_reporting)} of ${count(row.brokers_expected)}`, "num less"],
  ["mode", row => row.mode, "less"],
  ["plan", row => (row.plan_id ? planLink(row.plan_id) : "–")],
];

async function read(where) {
  const { from, to } = where;
  const page = await views.read("decisions", { from, to, limit: 25, cursor: where.cursor });
  const form = views.form(where, ["from", "From", "datetime-local"], ["to", "To", "datetime-local"]);
  const empty = from || to ? "No decision in this time." : "No decision yet: control decides at each closed window.";
  if (!page.items.length) return [form, none(empty)];
  return [form, scroll("Decisions", table(page.items, COLUMNS)), views.pager(where, page.next_cursor)];
}
views.add("decisions", { title: () => "Decisions, newest first", read });
