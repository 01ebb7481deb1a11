// The field at the top of each page, and what it finds (#search=TEXT): brokers by id or rack, topics and groups by name.
import { lag, lagHead } from "./units.js";
import { VERDICTS, el, hash, link, none, table } from "./elements.js";
import { resources } from "./resources.js";
import { topicTable } from "./topics.js";
import { views } from "./views.js";

const SHOWN = 20, BROKERS_READ = 1000;
const form = document.getElementById("search");
form.addEventListener("submit", event => {
  event.preventDefault();
  const text = form.elements.namedItem("text").value.trim();
  if (text) location.hash = hash("search", text);
});

function brokers(items) {
  const rows = items.slice(0, SHOWN).map(row => [link(`${row.broker}`, "broker", `${row.broker}`), row.rack || "–", ...resources.reported().map(one => [resources.shown(one.name, row[one.figures[0].name], row), "num"])]);
  return views.scroll("Brokers", table(["broker", "rack", ...resources.reported().map(one => [one.words, "num"])], rows));
}
const groups = items => views.scroll("Consumer groups", table(["group", "verdict", [lagHead(items), "num"], "why"], items.map(row =>
  [link(row.group, "group", row.group), el("span", { class: `badge ${VERDICTS[row.status] || "soft"}` }, row.status), [lag(row, items), "num"], [row.why, "why"]])));
function section(title, items, made, all) {
  return [el("h3", {}, title), items.length ? made(items) : none("None."), all];
}
async function read(where) {
  const search = where.value.trim(), text = search.toLowerCase();
  if (!search) return [none("Write a part of a name at the top of the page.")];
  const [known, topics, found] = await Promise.all([views.read("brokers", { limit: BROKERS_READ }), views.read("topics", { search, limit: SHOWN }), views.read("groups", { search, limit: SHOWN })]);
  const more = (name, page) => page.next_cursor ? el("p", { class: "line" }, link(`All ${name} with “${search}”`, name, "", { search })) : null;
  return [...section("Brokers", known.items.filter(row => `${row.broker}` === text || (row.rack || "").toLowerCase().includes(text)), brokers, null),
    ...section("Topics", topics.items, topicTable, more("topics", topics)), ...section("Consumer groups", found.items, groups, more("groups", found))];
}
views.add("search", { title: where => `Search: ${where.value}`, read });
