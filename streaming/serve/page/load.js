// Pages of one broker (#broker=3), topic (#topic=NAME) and partition (#partition=TOPIC/3): rates and size over time,
// the hottest partitions, the groups that read a topic, and what moved when and why.
import { html } from "./lit-html/lit-html.js";
import { offerOnView } from "./acting.js";
import {
  badge,
  brokerLink,
  brokerLinks,
  link,
  none,
  partitionLink,
  planLink,
  scroll,
  section,
  table,
  verdictBadge,
} from "./elements.js";
import { plots } from "./plot.js";
import { resources } from "./resources.js";
import { timeNow } from "./serve.js";
import { ago, bytes, count, counted, lag, lagHead, percent, rate, when, words } from "./units.js";
import { views } from "./views.js";

const POINTS_MAX = 240;
const PARTITIONS_SHOWN = 50;
const ROWS_MAX = 1000;
const HOTTEST_SHOWN = 10;
const GROUPS_SHOWN = 50;
const MOVES_SHOWN = 10;

async function history(where, path, keys, size) {
  const { ms, text } = views.span(where);
  const to = timeNow();
  const from = to - ms;
  const step = Math.floor(ms / POINTS_MAX);
  const past = await views.read(path, { ...keys, from, to, step, limit: ROWS_MAX });
  const series = (name, member) => ({ name, points: past.items.map(row => [row.start_ms, row[member]]) });
  const rates = resources.rates().map(one => series(one.words, one.figures[0].name));
  const shared = { from, to, stepMs: past.step_ms };
  return [
    plots.lines({ title: `Bytes per second, ${text}`, series: rates, unit: rate, ...shared }),
    plots.lines({ title: `Size, ${text}`, series: [series("size", size)], unit: bytes, ...shared }),
  ];
}
const outOfSync = replicas => html`<span class=${replicas ? "bad" : "soft"}>${count(replicas)}</span>`;

// Partitions by what the address asks for, such as &order=size; `keys` are the broker that leads them, or the topic.
async function hottest(where, title, keys, limit) {
  const orders = [...views.orders(), ["name", "number"]];
  const order = views.chosen(where.order, orders);
  const page = await views.read("partitions", { ...keys, order, limit });
  const columns = [
    ["partition", partitionLink],
    ["leader", row => brokerLink(row.broker)],
    ["replicas", row => brokerLinks(row.replicas), "less"],
    ["out of sync", row => outOfSync(row.out_of_sync_replicas), "num"],
    ...resources.columns(),
    ["size", row => bytes(row.size_bytes), "num"],
  ];
  return [
    html`<h3>${title}</h3>`,
    views.choices(where, "order", orders, order),
    page.items.length ? scroll(title, table(page.items, columns)) : none("None in the newest window."),
    page.next_cursor ? none("Further partitions are in /api/v1/partitions.") : null,
  ];
}
async function groups(topic) {
  const page = await views.read("groups", { topic, limit: GROUPS_SHOWN });
  const lags = page.items.map(row => row.topics[0]);
  const columns = [
    ["group", row => link(row.group, "group", row.group)],
    ["verdict of the group", row => verdictBadge(row.status)],
    [lagHead(lags, "lag here"), (_, i) => lag(lags[i], lags), "num"],
    ["why", row => row.why, "why"],
  ];
  return [
    section("Consumer groups that read it, worst first", page.items, columns, "No consumer group reads it."),
    page.next_cursor ? none("Further groups are in /api/v1/groups.") : null,
  ];
}

const STATES = { made: "good", not_made: "bad", under_way: "warn", waiting: "warn", unknown: "soft" };
function state(row) {
  const whole = `execution ${row.phase}: ${count(row.movements_done)} of ${count(row.movements_total)} made`;
  const made = row.made_ms === null ? "" : ` ${when(row.made_ms)}`;
  const text = row.state === "unknown" ? whole : words(row.state) + made;
  return html`<span class=${STATES[row.state]} title=${whole}>${text}</span>`;
}
const isWithinBroker = row => row.kind === "log_dir";
function before(row) {
  if (!isWithinBroker(row)) return brokerLinks(row.old_replicas);
  return html`<span>${brokerLink(row.old_replicas[0])} ${row.old_log_dir}</span>`;
}
const after = row => (isWithinBroker(row) ? row.new_log_dir : brokerLinks(row.new_replicas));
async function moves(where, keys) {
  const page = await views.read("movements", { ...keys, limit: MOVES_SHOWN, cursor: where.cursor });
  // Rows of one execution follow each other: its cause stands in the first.
  const isFirst = (row, i) => !i || page.items[i - 1].execution_id !== row.execution_id;
  const why = (row, i) => {
    const causes = isFirst(row, i) ? [row.cause, row.approval].filter(Boolean) : [];
    return html`<span>${row.reason || "–"}${causes.map(text => html`<div class="soft">${text}</div>`)}</span>`;
  };
  const columns = [
    ["began", row => when(row.started_ms ?? row.approved_ms)],
    ["partition", partitionLink],
    ["replicas before", before],
    ["after", after],
    ["to copy", row => bytes(row.bytes_to_move), "num"],
    ["state", state],
    ["why", why, "why"],
    ["ended", row => (row.ended_ms === null ? "–" : when(row.ended_ms))],
    ["execution", row => link(row.execution_id.slice(0, 12), "execution", row.execution_id)],
    ["plan", row => planLink(row.plan_id)],
  ];
  const empty = page.next_cursor ? "Nothing among the newest executions." : "No execution has moved anything of it.";
  return [
    html`<h3>What moved, when and why</h3>`,
    page.items.length ? scroll("Movements", table(page.items, columns)) : none(empty),
    views.pager(where, page.next_cursor),
  ];
}
const all = async parts => (await Promise.all(parts)).flat();

function apart(text) {
  const place = text.lastIndexOf("/");
  return { topic: text.slice(0, place), partition: text.slice(place + 1) };
}
const isPartition = text => /^[^/]+\/[0-9]+$/.test(text);
function called(text) {
  const { topic, partition } = apart(text);
  return isPartition(text) ? `Partition ${topic}-${partition}` : `No partition: ${text}`;
}
function leadership(row) {
  const lacking = row.out_of_sync_replicas ? [" · ", outOfSync(row.out_of_sync_replicas), " out of sync"] : null;
  const replicas = brokerLinks(row.replicas);
  return html`<span> · led by broker ${brokerLink(row.broker)} · replicas on ${replicas}${lacking}</span>`;
}
async function partition(where) {
  const wrong = "This address names no partition: it ends with #partition=TOPIC/NUMBER, such as #partition=orders/3.";
  if (!isPartition(where.value)) return [html`<p class="bad" role="alert">${wrong}</p>`];
  const keys = apart(where.value);
  const now = await views.read("partitions", keys);
  return [
    html`<p class="line">Topic ${link(keys.topic, "topic", keys.topic)}${now.items.map(leadership)}</p>`,
    ...(await all([history(where, "partitions", keys, "size_bytes"), moves(where, keys)])),
  ];
}

const LOG_DIRS = [
  ["path", dir => html`<span class="mono">${dir.path}</span>`, "wraps"],
  ["state", dir => html`<span class=${dir.state === "online" ? "good" : "bad"}>${dir.state}</span>`],
  ["volume", dir => bytes(dir.total_bytes), "num"],
  ["free", dir => bytes(dir.usable_bytes), "num"],
  ["full", dir => (dir.used_share === null ? "–" : percent(dir.used_share)), "num"],
];
function noted(text, ms, meaning) {
  return ms === null ? null : html`<p class="line">${badge("warn", text)} noted ${when(ms)}: ${meaning}</p>`;
}
// Where it stands, what is on its disks, and whether it is being drained or demoted.
async function aboutBroker(where) {
  const row = (await views.read("brokers", { broker: where.value })).items[0];
  if (!row) {
    offerOnView(null);
    return [none("No broker of this id has sent samples lately.")];
  }
  if (views.isAt(where.name, where.value)) offerOnView(...actsOn(row));
  const facts = [
    row.address,
    row.rack === null ? "no rack" : `rack ${row.rack}`,
    counted(row.leaders, "leader", "leaders"),
    counted(row.replicas, "replica", "replicas"),
    `${bytes(row.log_dir_used_bytes)} of logs`,
    row.log_dir_usable_bytes === null ? null : `${bytes(row.log_dir_usable_bytes)} free`,
    `newest sample ${ago(row.last_sample_ms, timeNow())}`,
  ];
  return [
    noted("drained", row.drained_ms, "it gets no replicas until the drain is ended"),
    noted("demoted", row.demoted_ms, "it leads nothing that another broker can lead until the demotion is ended"),
    html`<p class="line soft">${facts.filter(Boolean).join(" · ")}</p>`,
    row.log_dirs.length ? section("Log dirs", row.log_dirs, LOG_DIRS) : null,
  ];
}
function actsOn(row) {
  const id = row.broker;
  const broker = `broker ${id}`;
  const nothingYet = "until somebody approves the plan.";
  const act = (verb, path, ask, flag) => ({
    id: `${verb} ${id}`,
    about: broker,
    verb,
    typed: broker,
    path,
    ask,
    flag: flag && { name: "carry_out", text: `${flag} the plan at once` },
  });
  const drain = act(
    "drain",
    `api/v1/brokers/${id}/drain`,
    `This makes a plan that moves every replica of ${broker} to other brokers. Nothing moves ${nothingYet}`,
    "Note the drain and approve",
  );
  const add = act(
    "add",
    `api/v1/brokers/${id}/add`,
    `This makes a plan that gives ${broker} its share of the load. Nothing moves ${nothingYet}`,
    row.drained_ms === null ? "Approve" : "End the drain and approve",
  );
  const demote = act(
    "demote",
    `api/v1/brokers/${id}/demote`,
    `This makes a plan that takes all leadership off ${broker}; nothing is copied. Nothing changes ${nothingYet}`,
    "Note the demotion and approve",
  );
  const undemote = act(
    "end demotion",
    `api/v1/brokers/${id}/undemote`,
    `This makes a plan after which ${broker} leads again what it led. Nothing changes ${nothingYet}`,
    "End the demotion and approve",
  );
  const undrain = act(
    "end drain",
    `api/v1/brokers/${id}/undrain`,
    `Broker ${id} may get replicas again. Nothing moves by this alone.`,
  );
  if (row.demoted_ms !== null) return [drain, undemote];
  return row.drained_ms === null ? [drain, add, demote] : [undrain, add];
}
function broker(where) {
  const keys = { broker: where.value };
  return all([
    aboutBroker(where),
    history(where, "brokers", keys, "log_dir_used_bytes"),
    hottest(where, "Hottest partitions that it leads", keys, HOTTEST_SHOWN),
    moves(where, keys),
  ]);
}

async function aboutTopic(where) {
  const row = (await views.read("topics", { topic: where.value })).items[0];
  if (!row) return [none("No partition of this topic is in the newest window.")];
  const facts = [
    counted(row.partitions, "partition", "partitions"),
    `replication factor ${row.replication_factor}`,
    counted(row.replicas, "replica", "replicas"),
    `${bytes(row.size_bytes)} once`,
  ];
  const partitions = number => counted(number, "partition has", "partitions have");
  const lacking = row.partitions_under_replicated;
  const fewer = row.partitions_with_fewer;
  return [
    html`<p class="line soft">${facts.join(" · ")}</p>`,
    lacking ? html`<p class="line bad">${partitions(lacking)} a replica that is not in sync.</p>` : null,
    fewer ? html`<p class="line warn">${partitions(fewer)} fewer replicas reported than that.</p>` : null,
  ];
}
function topic(where) {
  const keys = { topic: where.value };
  return all([
    aboutTopic(where),
    history(where, "topics", keys, "size_bytes"),
    groups(where.value),
    hottest(where, "Partitions, hottest first", keys, PARTITIONS_SHOWN),
    moves(where, keys),
  ]);
}
views.add("broker", { title: where => `Broker ${where.value}`, hasSpans: true, read: broker });
views.add("topic", { title: where => `Topic ${where.value}`, hasSpans: true, read: topic });
views.add("partition", { title: where => called(where.value), hasSpans: true, read: partition });
