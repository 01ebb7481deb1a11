// The page of acts (#audit): who asked for what, how, from where, when, and what came of it.
import { words } from "./units.js";
import { el, link, none, planLink, table } from "./elements.js";
import { views } from "./views.js";

const PAGES = { abort: "execution", drain: "broker", undrain: "broker", add: "broker", demote: "broker", undemote: "broker" };
// Taken, but nothing is other than before.
const UNCHANGED = ["already_approved", "already_requested", "not_drained", "nothing_to_move"];
const kind = row => row.status >= 400 ? "bad" : UNCHANGED.includes(row.state) ? "soft" : "good";
const outcome = row => row.state ? el("span", { class: kind(row), title: row.detail || "" }, words(row.state))
  : el("span", { class: "warn" }, "not ended");
const target = row => row.action === "approve" && /^[0-9a-f]{64}$/.test(row.target || "")
  ? planLink(row.target) : row.target && PAGES[row.action] && !row.target.includes(" ") ? link(row.target, PAGES[row.action], row.target) : row.target || "–";

async function read(where) {
  const page = await views.read("audit", { limit: 100, cursor: where.cursor });
  if (!page.items.length) return [none("Nobody has asked for an act yet.")];
  const rows = page.items.map(row => [views.when(row.event_ms), row.actor || "–", row.signed_in_by || "–", row.role || "–", row.remote_address || "–",
    words(row.action), target(row), outcome(row), [row.detail || "–", "why"]]);
  return [views.scroll("Acts",
    table(["asked", "who", "signed in by", "role", "from", "act", "of what", "result", "detail"], rows)), views.pager(where, page.next_cursor)];
}
views.add("audit", { title: () => "Acts, newest first", read });
