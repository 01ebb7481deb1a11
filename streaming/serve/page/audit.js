// The page of acts (#audit): who asked for what, how, from where, when, and what came of it.
import { html } from "./lit-html/lit-html.js";
import { link, none, planLink, scroll, table } from "./elements.js";
import { when, words } from "./units.js";
import { views } from "./views.js";

const PAGES = {
  abort: "execution",
  drain: "broker",
  undrain: "broker",
  add: "broker",
  demote: "broker",
  undemote: "broker",
};
// Taken, but nothing is other than before.
const UNCHANGED = ["already_approved", "already_requested", "not_drained", "nothing_to_move"];

function outcome(row) {
  if (!row.state) return html`<span class="warn">not ended</span>`;
  const kind = row.status >= 400 ? "bad" : UNCHANGED.includes(row.state) ? "soft" : "good";
  return html`<span class=${kind} title=${row.detail || ""}>${words(row.state)}</span>`;
}
function target(row) {
  if (!row.target) return "–";
  if (row.action === "approve" && /^[0-9a-f]{64}$/.test(row.target)) return planLink(row.target);
  const page = PAGES[row.action];
  return page && !row.target.includes(" ") ? link(row.target, page, row.target) : row.target;
}
const COLUMNS = [
  ["asked", row => when(row.event_ms)],
  ["who", row => row.actor || "–"],
  ["signed in by", row => row.signed_in_by || "–"],
  ["role", row => row.role || "–"],
  ["from", row => row.remote_address || "–"],
  ["act", row => words(row.action)],
  ["of what", target],
  ["result", outcome],
  ["detail", row => row.detail || "–", "why"],
];

async function read(where) {
  const page = await views.read("audit", { limit: 100, cursor: where.cursor });
  if (!page.items.length) return [none("Nobody has asked for an act yet.")];
  return [scroll("Acts", table(page.items, COLUMNS)), views.pager(where, page.next_cursor)];
}
views.add("audit", { title: () => "Acts, newest first", read });
