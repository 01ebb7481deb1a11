// The page of topics (#topics): their partitions, replicas, sizes and rates, searched by name and in the order asked for.
import { bytes, count } from "./units.js";
import { el, link, none, table } from "./elements.js";
import { resources } from "./resources.js";
import { views } from "./views.js";

export const topicTable = items => views.scroll("Topics", table(["topic", ["partitions", "num"], ["replicas", "num"], ["replication factor", "num"], ["under-replicated", "num"], ...resources.heads(), ["size", "num"]],
  items.map(row => [link(row.topic, "topic", row.topic), [count(row.partitions), "num"], [count(row.replicas), "num"], [count(row.replication_factor), "num"],
    [el("span", { class: row.partitions_under_replicated ? "bad" : "soft" }, count(row.partitions_under_replicated)), "num"],
    ...resources.cells(row), [bytes(row.size_bytes), "num"]])));

async function read(where) {
  const orders = [...views.orders(), ["name", "name"]], order = (orders.find(([key]) => key === where.order) || orders[0])[0];
  const page = await views.read("topics", { search: where.search, order, limit: 50, cursor: where.cursor });
  return [views.form(where, ["search", "Name"]), views.choices(where, "order", orders, order),
    page.items.length ? topicTable(page.items) : none(where.search ? "No topic has such a name." : "No topic is in the newest window."),
    none("Sizes count each record once. “Under-replicated” counts partitions with a replica that is not in sync."), views.pager(where, page.next_cursor)];
}
views.add("topics", { title: () => "Topics", read });
