// The field at the top of each page, and what it finds (#search=TEXT): brokers by id or rack, topics and groups by
// name.
import { html } from "./lit-html/lit-html.js";
import { brokerLink, hash, link, none, section, verdictBadge } from "./elements.js";
import { resources } from "./resources.js";
import { topicColumns } from "./topics.js";
import { lag, lagHead } from "./units.js";
import { views } from "./views.js";

const SHOWN = 20;
const BROKERS_READ = 1000;
const NOTHING = "None.";
const form = document.getElementById("search");
form.addEventListener("submit", event => {
  event.preventDefault();
  const text = form.elements.namedItem("text").value.trim();
  if (text) location.hash = hash("search", text);
});

const brokerColumns = () => [
  ["broker", row => brokerLink(row.broker)],
  ["rack", row => row.rack || "–"],
  ...resources.brokerColumns((one, row) => row[one.figures[0].name]),
];
const groupColumns = items => [
  ["group", row => link(row.group, "group", row.group)],
  ["verdict", row => verdictBadge(row.status)],
  [lagHead(items), row => lag(row, items), "num"],
  ["why", row => row.why, "why"],
];
async function read(where) {
  const search = where.value.trim();
  const text = search.toLowerCase();
  if (!search) return [none("Write a part of a name at the top of the page.")];
  const [known, topics, groups] = await Promise.all([
    views.read("brokers", { limit: BROKERS_READ }),
    views.read("topics", { search, limit: SHOWN }),
    views.read("groups", { search, limit: SHOWN }),
  ]);
  const isFound = row => `${row.broker}` === text || (row.rack || "").toLowerCase().includes(text);
  const brokers = known.items.filter(isFound).slice(0, SHOWN);
  const more = (name, page) =>
    page.next_cursor ? html`<p class="line">${link(`All ${name} with “${search}”`, name, "", { search })}</p>` : null;
  return [
    section("Brokers", brokers, brokerColumns(), NOTHING),
    section("Topics", topics.items, topicColumns(), NOTHING),
    more("topics", topics),
    section("Consumer groups", groups.items, groupColumns(groups.items), NOTHING),
    more("groups", groups),
  ];
}
views.add("search", { title: where => `Search: ${where.value}`, read });
