// Pages of consumer groups: all of them by verdict (#groups), and one (#group=NAME).
import { html } from "./lit-html/lit-html.js";
import { link, none, partitionLink, scroll, section, table, verdictBadge } from "./elements.js";
import { plots } from "./plot.js";
import { timeNow } from "./serve.js";
import { count, counted, isKnown, lag, lagHead, percent, span, when } from "./units.js";
import { views } from "./views.js";

const WORST_SHOWN = 5;
const PARTITIONS_SHOWN = 50;
const REBALANCES_SHOWN = 20;
const ROWS_MAX = 1000;
const POINTS_MAX = 240;
const seconds = value => (isKnown(value) ? span(1000 * value) : "–");
const perSecond = value => (isKnown(value) ? `${value < 10 ? value.toFixed(1) : count(value)}/s` : "–");

async function all(where) {
  const page = await views.read("groups", { limit: 100, cursor: where.cursor, search: where.search });
  const form = views.form(where, ["search", "Name"]);
  const empty = where.search ? "No consumer group has such a name." : "No consumer group seen yet.";
  if (!page.items.length) return [form, none(empty)];
  const columns = [
    ["group", row => link(row.group, "group", row.group)],
    ["verdict", row => verdictBadge(row.status)],
    ["state", row => row.state || "–", "less"],
    ["partitions", row => count(row.partitions), "num less"],
    [lagHead(page.items), row => lag(row, page.items), "num"],
    ["waiting for", row => seconds(row.lag_seconds), "num less"],
    ["why", row => row.why, "why"],
  ];
  return [form, scroll("Consumer groups", table(page.items, columns)), views.pager(where, page.next_cursor)];
}

function advised(advice) {
  if (!advice) return null;
  if (advice.needed === null) {
    const heaviest = percent(advice.heaviest_partition_ratio);
    return `No number of members is enough: one partition alone takes ${heaviest} of what a member can read.`;
  }
  const option = one => `with ${one.members} the fullest member is at ${percent(one.heaviest_ratio)}`;
  return `It needs ${counted(advice.needed, "member", "members")}: ${advice.options.map(option).join("; ")}.`;
}
const list = (title, entries) => (entries.length ? html`<h3>${title}</h3><ul>${entries}</ul>` : null);
function head(group, parts) {
  const facts = [
    parts.state,
    parts.group_type,
    parts.assignor,
    parts.generation_id === null ? null : `generation ${parts.generation_id}`,
    parts.group_members === null ? null : counted(parts.group_members, "member", "members"),
    counted(parts.total, "partition", "partitions"),
  ];
  const causes = parts.causes.map(
    row => html`<li>${row.cause}, ${row.subject}: ${row.figure}. <span class="soft">${row.helps}</span></li>`,
  );
  const advice = [...parts.hints, advised(parts.advice)].filter(Boolean).map(text => html`<li>${text}</li>`);
  return html`<div><p class="line">${verdictBadge(group.status)} ${group.why}</p>
    <p class="line soft">${facts.filter(Boolean).join(" · ")}</p>
    ${list("Causes", causes)}${list("Advice", advice)}</div>`;
}
function topics(rows) {
  const retained = row => (row.retention_ratio === null ? "–" : `${(100 * row.retention_ratio).toFixed(1)} %`);
  return section("Topics", rows, [
    ["topic", row => link(row.topic, "topic", row.topic)],
    ["partitions", row => count(row.partitions), "num"],
    [lagHead(rows), row => lag(row, rows), "num"],
    ["waiting for", row => seconds(row.lag_seconds), "num"],
    ["of retained", retained, "num"],
    ["last commit", row => when(row.last_commit_ms)],
  ]);
}
function members(group, parts) {
  const name = row => row.group_instance_id || row.client_id || row.member_id;
  const columns = [
    ["member", row => html`<span title=${row.member_id}>${name(row)}</span>`],
    ["rack", row => row.rack_id || "–"],
    ["partitions", row => count(row.partitions), "num"],
    [lagHead([group]), row => count(row.lag_records), "num"],
    ["reads", row => perSecond(row.consumed_per_sec), "num"],
  ];
  const left = counted(parts.members_left_out, "member with less lag is", "members with less lag are");
  return [
    section("Members", parts.members, columns, "No partition has an owner."),
    parts.members_left_out ? none(`${left} not shown.`) : null,
  ];
}
function partitions(parts) {
  const columns = [
    ["partition", partitionLink],
    ["verdict", row => verdictBadge(row.status)],
    [lagHead(parts.items), row => lag(row, parts.items), "num"],
    ["waiting for", row => seconds(row.lag_seconds), "num less"],
    ["reads", row => perSecond(row.consumed_per_sec), "num less"],
    ["written", row => perSecond(row.produced_per_sec), "num less"],
    ["caught up in", row => seconds(row.catch_up_seconds), "num"],
    ["client", row => row.client_id || "–", "less"],
    ["why", row => row.why, "why"],
  ];
  const more = parts.total - parts.items.length;
  const left = counted(more, "partition with less lag is", "partitions with less lag are");
  return [
    section("Partitions, worst first", parts.items, columns),
    more > 0 ? none(`${left} not shown: /api/v1/groups/partitions has all.`) : null,
  ];
}
function rebalances(rows, from, to) {
  if (!rows.length) return html`<h3>Rebalances</h3>${none("None was seen in this time.")}`;
  const isLoss = row => row.cause.includes("lost") || row.cause.includes("left");
  const events = rows.map(row => ({
    ms: row.until_ms,
    name: `${when(row.until_ms)}: ${row.cause}`,
    kind: isLoss(row) ? "bad" : row.restarts ? "warn" : "main",
  }));
  const changed = row => [...row.members_in.map(name => `+ ${name}`), ...row.members_out.map(name => `− ${name}`)];
  const columns = [
    ["seen", row => when(row.until_ms)],
    ["cause", row => row.cause],
    ["rebalances", row => count(row.rebalances), "num less"],
    ["partitions moved", row => count(row.partitions_moved), "num"],
    ["without owner", row => count(row.partitions_unowned), "num less"],
    ["members", row => changed(row).join(", ") || "–", "why"],
  ];
  return html`<h3>Rebalances</h3>${plots.times({ title: "Rebalances", events, from, to })}
    ${scroll("Rebalances", table(rows.slice(0, REBALANCES_SHOWN), columns))}`;
}

async function one(where) {
  const group = where.value;
  const to = timeNow();
  const from = to - views.span(where).ms;
  const past = { group, from, to };
  const [listed, parts, events] = await Promise.all([
    views.read("groups", { group }),
    views.read("groups/partitions", { group, limit: PARTITIONS_SHOWN }),
    views.read("groups/rebalances", { ...past, limit: ROWS_MAX }),
  ]);
  const step = Math.max(1, Math.floor((to - from) / POINTS_MAX));
  const worst = parts.items.slice(0, WORST_SHOWN);
  const history = ({ topic, partition }) => views.read("groups", { ...past, step, topic, partition, limit: ROWS_MAX });
  const lags = await Promise.all(worst.map(history));
  const series = lags.map((answer, i) => ({
    name: `${worst[i].topic}-${worst[i].partition}`,
    points: answer.items.map(row => [row.start_ms, row.lag_records]),
  }));
  const title = `${lagHead(worst, "Lag of the worst partitions")}, ${views.span(where).text}`;
  const known = listed.items[0] || {};
  return [
    listed.items.length ? head(known, parts) : null,
    plots.lines({ title, series, unit: count, from, to, stepMs: lags.length ? lags[0].step_ms : 1 }),
    rebalances(events.items, from, to),
    topics(known.topics || []),
    members(known, parts),
    partitions(parts),
  ];
}
views.add("groups", { title: () => "Consumer groups, worst first", read: all });
views.add("group", { title: where => `Consumer group ${where.value}`, read: one, hasSpans: true });
