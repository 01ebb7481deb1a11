// The page of plans (#plans): what each would have moved and what it promised, the newest first.
import { none, planLink, scroll, table } from "./elements.js";
import { resources } from "./resources.js";
import { timeNow } from "./serve.js";
import { bytes, count, ratio, when } from "./units.js";
import { views } from "./views.js";

const promised = name => row =>
  `${ratio(row[`${name}_max_over_mean_before`])} → ${ratio(row[`${name}_max_over_mean_after`])}`;
async function read(where) {
  const { from, to } = where;
  const page = await views.read("plans", { from, to, limit: 50, cursor: where.cursor });
  const form = views.form(where, ["from", "From", "datetime-local"], ["to", "To", "datetime-local"]);
  if (!page.items.length) return [form, none(from || to ? "No plan of this time is kept." : "No plan yet.")];
  const columns = [
    ["made", row => when(row.created_ms)],
    ["plan", row => planLink(row.plan_id)],
    ["movements", row => count(row.movement_count), "num"],
    ["to copy", row => bytes(row.bytes_to_move), "num"],
    ...resources.rates().map(one => [`${one.words}, max/mean`, promised(one.name), "num"]),
    ["expires", row => (row.expires_ms > timeNow() ? when(row.expires_ms) : "expired")],
  ];
  return [form, scroll("Plans", table(page.items, columns)), views.pager(where, page.next_cursor)];
}
views.add("plans", { title: () => "Plans, newest first", read });
