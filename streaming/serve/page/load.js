// Pages of one broker (#broker=3), topic (#topic=NAME) and partition (#partition=TOPIC/3): rates and size over time, the
// hottest partitions, the groups that read a topic, and what moved when and why.
import { ago, bytes, count, counted, lag, lagHead, rate, words } from "./units.js";
import { VERDICTS, el, link, none, planLink, table } from "./elements.js";
import { timeNow } from "./serve.js";
import { resources } from "./resources.js";
import { plots } from "./plot.js";
import { views } from "./views.js";
import { offerOnView } from "./acting.js";

const POINTS_MAX = 240, PARTITIONS_SHOWN = 50, ROWS_MAX = 1000, HOTTEST_SHOWN = 10, GROUPS_SHOWN = 50, MOVES_SHOWN = 10;

async function history(where, path, keys, size) {
  const to = timeNow(), from = to - views.span(where).ms, step = Math.floor((to - from) / POINTS_MAX);
  const past = await views.read(path, { ...keys, from, to, step, limit: ROWS_MAX });
  const series = (name, member) => ({ name, points: past.items.map(row => [row.start_ms, row[member]]) });
  const time = views.span(where).text, shared = { from, to, stepMs: past.step_ms };
  return [plots.lines({ title: `Bytes per second, ${time}`, series: resources.rates().map(one => series(one.words, one.figures[0].name)), unit: rate, ...shared }),
    plots.lines({ title: `Size, ${time}`, series: [series("size", size)], unit: bytes, ...shared })];
}
const outOfSync = replicas => el("span", { class: replicas ? "bad" : "soft" }, count(replicas));
const toBroker = id => link(`${id}`, "broker", `${id}`);

// Partitions by what the address asks for, such as &order=size; `keys` are the broker that leads them, or the topic.
async function hottest(where, title, keys, limit) {
  const orders = [...views.orders(), ["name", "number"]], order = (orders.find(([key]) => key === where.order) || orders[0])[0];
  const page = await views.read("partitions", { ...keys, order, limit });
  const rows = page.items.map(row => [views.partition(row), toBroker(row.broker), [brokers(row.replicas), "less"], [outOfSync(row.out_of_sync_replicas), "num"],
    ...resources.cells(row), [bytes(row.size_bytes), "num"]]);
  return [el("h3", {}, title), views.choices(where, "order", orders, order), rows.length ? views.scroll(title,
    table(["partition", "leader", ["replicas", "less"], ["out of sync", "num"], ...resources.heads(), ["size", "num"]], rows)) : none("None in the newest window."),
    page.next_cursor ? none("Further partitions are in /api/v1/partitions.") : null];
}
async function groups(topic) {
  const page = await views.read("groups", { topic, limit: GROUPS_SHOWN });
  const topics = page.items.map(row => row.topics[0]);
  const rows = page.items.map((row, i) => [link(row.group, "group", row.group), el("span", { class: `badge ${VERDICTS[row.status] || "soft"}` }, row.status),
    [lag(topics[i], topics), "num"], [row.why, "why"]]);
  return [el("h3", {}, "Consumer groups that read it, worst first"), rows.length ? views.scroll("Consumer groups",
    table(["group", "verdict of the group", [lagHead(topics, "lag here"), "num"], "why"], rows)) : none("No consumer group reads it."),
    page.next_cursor ? none("Further groups are in /api/v1/groups.") : null];
}

const STATES = { made: "good", not_made: "bad", under_way: "warn", waiting: "warn", unknown: "soft" };
function came(row) {
  const whole = `execution ${row.phase}: ${count(row.movements_done)} of ${count(row.movements_total)} made`;
  const when = row.made_ms === null ? "" : ` ${views.when(row.made_ms)}`;
  return el("span", { class: STATES[row.state], title: whole }, row.state === "unknown" ? whole : words(row.state) + when);
}
const brokers = ids => el("span", {}, ...ids.flatMap((id, i) => [i ? ", " : "", toBroker(id)]));
const route = row => row.kind === "log_dir"
  ? [el("span", {}, toBroker(row.old_replicas[0]), ` ${row.old_log_dir}`), row.new_log_dir] : [brokers(row.old_replicas), brokers(row.new_replicas)];
async function moves(where, keys) {
  const page = await views.read("movements", { ...keys, limit: MOVES_SHOWN, cursor: where.cursor });
  // Rows of one execution follow each other: its cause stands in the first.
  const isFirst = (row, i) => !i || page.items[i - 1].execution_id !== row.execution_id;
  const rows = page.items.map((row, i) => [views.when(row.started_ms ?? row.approved_ms), views.partition(row), ...route(row), [bytes(row.bytes_to_move), "num"], came(row),
    [el("span", {}, row.reason || "–", ...(isFirst(row, i) ? [row.cause, row.approval] : []).filter(Boolean).map(text => el("div", { class: "soft" }, text))), "why"],
    row.ended_ms === null ? "–" : views.when(row.ended_ms), link(row.execution_id.slice(0, 12), "execution", row.execution_id), planLink(row.plan_id)]);
  return [el("h3", {}, "What moved, when and why"), rows.length ? views.scroll("Movements",
    table(["began", "partition", "replicas before", "after", ["to copy", "num"], "state", "why", "ended", "execution", "plan"], rows))
    : none(page.next_cursor ? "Nothing among the newest executions." : "No execution has moved anything of it."), views.pager(where, page.next_cursor)];
}
function apart(text) {
  const place = text.lastIndexOf("/");
  return { topic: text.slice(0, place), partition: text.slice(place + 1) };
}
const isPartition = text => /^[^/]+\/[0-9]+$/.test(text);
const called = text => { const { topic, partition } = apart(text); return isPartition(text) ? `Partition ${topic}-${partition}` : `No partition: ${text}`; };
const all = async parts => (await Promise.all(parts)).flat();

async function partition(where) {
  if (!isPartition(where.value)) return [el("p", { class: "bad", role: "alert" }, "This address names no partition: it ends with #partition=TOPIC/NUMBER, such as #partition=orders/3.")];
  const keys = apart(where.value), now = await views.read("partitions", keys);
  const led = now.items.map(row => el("span", {}, " · led by broker ", toBroker(row.broker), " · replicas on ", brokers(row.replicas), ...row.out_of_sync_replicas ? [" · ", outOfSync(row.out_of_sync_replicas), " out of sync"] : []));
  return [el("p", { class: "line" }, "Topic ", link(keys.topic, "topic", keys.topic), ...led),
    ...await all([history(where, "partitions", keys, "size_bytes"), moves(where, keys)])];
}
// Where it stands, what is on its disks, and whether it is being drained.
async function aboutBroker(where) {
  const row = (await views.read("brokers", { broker: where.value })).items[0];
  if (!row) { offerOnView(null); return [none("No broker of this id has sent samples lately.")]; }
  if (views.isAt(where.name, where.value)) offerOnView(...actsOn(row));
  const facts = [row.address, row.rack === null ? "no rack" : `rack ${row.rack}`, counted(row.leaders, "leader", "leaders"), counted(row.replicas, "replica", "replicas"),
    `${bytes(row.log_dir_used_bytes)} of logs`, row.log_dir_usable_bytes === null ? null : `${bytes(row.log_dir_usable_bytes)} free`, `newest sample ${ago(row.last_sample_ms, timeNow())}`];
  const dirs = row.log_dirs.map(dir => [[el("span", { class: "mono" }, dir.path), "wraps"], el("span", { class: dir.state === "online" ? "good" : "bad" }, dir.state),
    [bytes(dir.total_bytes), "num"], [bytes(dir.usable_bytes), "num"], [dir.used_share === null ? "–" : `${Math.round(100 * dir.used_share)} %`, "num"]]);
  return [row.drained_ms === null ? null : el("p", { class: "line" }, el("span", { class: "badge warn" }, "drained"), ` noted ${views.when(row.drained_ms)}: it gets no replicas until the drain is ended`),
    row.demoted_ms === null ? null : el("p", { class: "line" }, el("span", { class: "badge warn" }, "demoted"), ` noted ${views.when(row.demoted_ms)}: it leads nothing that another broker can lead until the demotion is ended`),
    el("p", { class: "line soft" }, facts.filter(Boolean).join(" · ")),
    ...dirs.length ? [el("h3", {}, "Log dirs"), views.scroll("Log dirs", table(["path", "state", ["volume", "num"], ["free", "num"], ["full", "num"]], dirs))] : []];
}
const actsOn = row => row.demoted_ms !== null ? [drain(row), undemote(row)] : row.drained_ms !== null ? [undrain(row), add(row)] : [drain(row), add(row), demote(row)];
const drain = row => ({
  id: `drain ${row.broker}`, about: `broker ${row.broker}`, verb: "drain", typed: `broker ${row.broker}`, path: `api/v1/brokers/${row.broker}/drain`, closed: () => {},
  ask: `This makes a plan that moves every replica of broker ${row.broker} to other brokers. Nothing moves until somebody approves the plan.`,
  flag: { name: "carry_out", text: "Note the drain and approve the plan at once" },
});
const add = row => ({
  id: `add ${row.broker}`, about: `broker ${row.broker}`, verb: "add", typed: `broker ${row.broker}`, path: `api/v1/brokers/${row.broker}/add`, closed: () => {},
  ask: `This makes a plan that gives broker ${row.broker} its share of the load. Nothing moves until somebody approves the plan.`,
  flag: { name: "carry_out", text: row.drained_ms === null ? "Approve the plan at once" : "End the drain and approve the plan at once" },
});
const demote = row => ({
  id: `demote ${row.broker}`, about: `broker ${row.broker}`, verb: "demote", typed: `broker ${row.broker}`, path: `api/v1/brokers/${row.broker}/demote`, closed: () => {},
  ask: `This makes a plan that takes all leadership off broker ${row.broker}; nothing is copied. Nothing changes until somebody approves the plan.`,
  flag: { name: "carry_out", text: "Note the demotion and approve the plan at once" },
});
const undemote = row => ({
  id: `undemote ${row.broker}`, about: `broker ${row.broker}`, verb: "end demotion", typed: `broker ${row.broker}`, path: `api/v1/brokers/${row.broker}/undemote`, closed: () => {},
  ask: `This makes a plan after which broker ${row.broker} leads again what it led. Nothing changes until somebody approves the plan.`,
  flag: { name: "carry_out", text: "End the demotion and approve the plan at once" },
});
const undrain = row => ({
  id: `undrain ${row.broker}`, about: `broker ${row.broker}`, verb: "end drain", typed: `broker ${row.broker}`, path: `api/v1/brokers/${row.broker}/undrain`, closed: () => {},
  ask: `Broker ${row.broker} may get replicas again. Nothing moves by this alone.`,
});
views.add("broker", { title: where => `Broker ${where.value}`, hasSpans: true, read: where => all([
  aboutBroker(where), history(where, "brokers", { broker: where.value }, "log_dir_used_bytes"),
  hottest(where, "Hottest partitions that it leads", { broker: where.value }, HOTTEST_SHOWN), moves(where, { broker: where.value })]) });
async function aboutTopic(where) {
  const row = (await views.read("topics", { topic: where.value })).items[0];
  const facts = row ? [counted(row.partitions, "partition", "partitions"), `replication factor ${row.replication_factor}`, counted(row.replicas, "replica", "replicas"), `${bytes(row.size_bytes)} once`] : [];
  const fewer = row && row.partitions_with_fewer ? el("p", { class: "line warn" }, `${counted(row.partitions_with_fewer, "partition has", "partitions have")} fewer replicas reported than that.`) : null;
  const lacking = row && row.partitions_under_replicated ? el("p", { class: "line bad" }, `${counted(row.partitions_under_replicated, "partition has", "partitions have")} a replica that is not in sync.`) : null;
  return [row ? el("p", { class: "line soft" }, facts.join(" · ")) : none("No partition of this topic is in the newest window."), lacking, fewer];
}
views.add("topic", { title: where => `Topic ${where.value}`, hasSpans: true, read: where => all([
  aboutTopic(where), history(where, "topics", { topic: where.value }, "size_bytes"), groups(where.value),
  hottest(where, "Partitions, hottest first", { topic: where.value }, PARTITIONS_SHOWN), moves(where, { topic: where.value })]) });
views.add("partition", { title: where => called(where.value), hasSpans: true, read: partition });
