// The page of plans (#plans): what each would have moved and what it promised, the newest first.
import { bytes, count, ratio } from "./units.js";
import { none, planLink, table } from "./elements.js";
import { timeNow } from "./serve.js";
import { resources } from "./resources.js";
import { views } from "./views.js";

async function read(where) {
  const { from, to } = where, page = await views.read("plans", { from, to, limit: 50, cursor: where.cursor });
  const form = views.form(where, ["from", "From", "datetime-local"], ["to", "To", "datetime-local"]);
  if (!page.items.length) return [form, none(from || to ? "No plan of this time is kept." : "No plan yet.")];
  const promised = resources.rates();
  const rows = page.items.map(row => [views.when(row.created_ms), planLink(row.plan_id), [count(row.movement_count), "num"], [bytes(row.bytes_to_move), "num"],
    ...promised.map(one => [`${ratio(row[`${one.name}_max_over_mean_before`])} → ${ratio(row[`${one.name}_max_over_mean_after`])}`, "num"]),
    row.expires_ms > timeNow() ? views.when(row.expires_ms) : "expired"]);
  return [form, views.scroll("Plans", table(["made", "plan", ["movements", "num"], ["to copy", "num"], ...promised.map(one => [`${one.words}, max/mean`, "num"]), "expires"], rows)),
    views.pager(where, page.next_cursor)];
}
views.add("plans", { title: () => "Plans, newest first", read });
