// The page of topics (#topics): their partitions, replicas, sizes and rates, searched by name and in the order asked
// for.
import { html } from "./lit-html/lit-html.js";
import { link, none, scroll, table } from "./elements.js";
import { resources } from "./resources.js";
import { bytes, count } from "./units.js";
import { views } from "./views.js";

function lacking(row) {
  const partitions = row.partitions_under_replicated;
  return html`<span class=${partitions ? "bad" : "soft"}>${count(partitions)}</span>`;
}
export const topicColumns = () => [
  ["topic", row => link(row.topic, "topic", row.topic)],
  ["partitions", row => count(row.partitions), "num"],
  ["replicas", row => count(row.replicas), "num"],
  ["replication factor", row => count(row.replication_factor), "num"],
  ["under-replicated", lacking, "num"],
  ...resources.columns(),
  ["size", row => bytes(row.size_bytes), "num"],
];

async function read(where) {
  const orders = [...views.orders(), ["name", "name"]];
  const order = views.chosen(where.order, orders);
  const page = await views.read("topics", { search: where.search, order, limit: 50, cursor: where.cursor });
  const empty = where.search ? "No topic has such a name." : "No topic is in the newest window.";
  return [
    views.form(where, ["search", "Name"]),
    views.choices(where, "order", orders, order),
    page.items.length ? scroll("Topics", table(page.items, topicColumns())) : none(empty),
    none("Sizes count each record once. “Under-replicated” counts partitions with a replica that is not in sync."),
    views.pager(where, page.next_cursor),
  ];
}
views.add("topics", { title: () => "Topics", read });
