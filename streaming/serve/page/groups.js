// Pages of consumer groups: all of them by verdict (#groups), and one (#group=NAME).
import { count, counted, lag, lagHead, span } from "./units.js";
import { VERDICTS, el, link, none, table } from "./elements.js";
import { timeNow } from "./serve.js";
import { plots } from "./plot.js";
import { views } from "./views.js";

const WORST_SHOWN = 5, PARTITIONS_SHOWN = 50, ROWS_MAX = 1000;
const badge = status => el("span", { class: `badge ${VERDICTS[status] || "soft"}` }, status);
const seconds = value => value === null || value === undefined ? "–" : span(1000 * value);
const perSecond = value => value === null || value === undefined ? "–" : `${value < 10 ? value.toFixed(1) : count(value)}/s`;

async function all(where) {
  const page = await views.read("groups", { limit: 100, cursor: where.cursor, search: where.search });
  const form = views.form(where, ["search", "Name"]);
  if (!page.items.length) return [form, none(where.search ? "No consumer group has such a name." : "No consumer group seen yet.")];
  return [form, views.scroll("Consumer groups", table(["group", "verdict", ["state", "less"], ["partitions", "num less"], [lagHead(page.items), "num"], ["waiting for", "num less"], "why"],
    page.items.map(row => [link(row.group, "group", row.group), badge(row.status), [row.state || "–", "less"], [count(row.partitions), "num less"],
      [lag(row, page.items), "num"], [seconds(row.lag_seconds), "num less"], [row.why, "why"]]))), views.pager(where, page.next_cursor)];
}

function advised(advice) {
  if (!advice) return null;
  if (advice.needed === null) return `No number of members is enough: one partition alone takes ${Math.round(100 * advice.heaviest_partition_ratio)} % of what a member can read.`;
  const options = advice.options.map(one => `with ${one.members} the fullest member is at ${Math.round(100 * one.heaviest_ratio)} %`);
  return `It needs ${counted(advice.needed, "member", "members")}: ${options.join("; ")}.`;
}
function head(group, parts) {
  const facts = [parts.state, parts.group_type, parts.assignor, parts.generation_id === null ? null : `generation ${parts.generation_id}`,
    parts.group_members === null ? null : counted(parts.group_members, "member", "members"), counted(parts.total, "partition", "partitions")];
  const advice = [...parts.hints, advised(parts.advice)].filter(Boolean);
  return el("div", {}, el("p", { class: "line" }, badge(group.status), " ", group.why),
    el("p", { class: "line soft" }, facts.filter(Boolean).join(" · ")),
    parts.causes.length ? el("h3", {}, "Causes") : null,
    parts.causes.length ? el("ul", {}, ...parts.causes.map(row => el("li", {}, `${row.cause}, ${row.subject}: ${row.figure}. `, el("span", { class: "soft" }, row.helps)))) : null,
    advice.length ? el("h3", {}, "Advice") : null,
    advice.length ? el("ul", {}, ...advice.map(text => el("li", {}, text))) : null);
}
function topics(group) {
  const found = group.topics || [];
  const rows = found.map(row => [link(row.topic, "topic", row.topic), [count(row.partitions), "num"], [lag(row, found), "num"],
    [seconds(row.lag_seconds), "num"], [row.retention_ratio === null ? "–" : `${(100 * row.retention_ratio).toFixed(1)} %`, "num"], views.when(row.last_commit_ms)]);
  return [el("h3", {}, "Topics"), views.scroll("Topics", table(["topic", ["partitions", "num"], [lagHead(found), "num"], ["waiting for", "num"], ["of retained", "num"], "last commit"], rows))];
}
function members(group, parts) {
  const rows = parts.members.map(row => [el("span", { title: row.member_id }, row.group_instance_id || row.client_id || row.member_id), row.rack_id || "–",
    [count(row.partitions), "num"], [count(row.lag_records), "num"], [perSecond(row.consumed_per_sec), "num"]]);
  return [el("h3", {}, "Members"), rows.length ? views.scroll("Members", table(["member", "rack", ["partitions", "num"], [lagHead([group]), "num"], ["reads", "num"]], rows)) : none("No partition has an owner."),
    parts.members_left_out ? none(`${counted(parts.members_left_out, "member with less lag is", "members with less lag are")} not shown.`) : null];
}
function partitions(parts) {
  const rows = parts.items.map(row => [views.partition(row), badge(row.status), [lag(row, parts.items), "num"], [seconds(row.lag_seconds), "num less"],
    [perSecond(row.consumed_per_sec), "num less"], [perSecond(row.produced_per_sec), "num less"], [seconds(row.catch_up_seconds), "num"], [row.client_id || "–", "less"], [row.why, "why"]]);
  const more = parts.total - rows.length;
  return [el("h3", {}, "Partitions, worst first"), views.scroll("Partitions", table(["partition", "verdict", [lagHead(parts.items), "num"], ["waiting for", "num less"], ["reads", "num less"], ["written", "num less"],
    ["caught up in", "num"], ["client", "less"], "why"], rows)), more > 0 ? none(`${counted(more, "partition with less lag is", "partitions with less lag are")} not shown: /api/v1/groups/partitions has all.`) : null];
}
function rebalances(events, from, to) {
  const kind = row => row.cause.includes("lost") || row.cause.includes("left") ? "bad" : row.restarts ? "warn" : "main";
  const marks = events.map(row => ({ ms: row.until_ms, name: `${views.when(row.until_ms)}: ${row.cause}`, kind: kind(row) }));
  const rows = events.slice(0, 20).map(row => [views.when(row.until_ms), row.cause, [count(row.rebalances), "num less"], [count(row.partitions_moved), "num"], [count(row.partitions_unowned), "num less"],
    [[...row.members_in.map(name => `+ ${name}`), ...row.members_out.map(name => `− ${name}`)].join(", ") || "–", "why"]]);
  return [el("h3", {}, "Rebalances"), events.length ? plots.times({ title: "Rebalances", events: marks, from, to }) : none("None was seen in this time."),
    rows.length ? views.scroll("Rebalances", table(["seen", "cause", ["rebalances", "num less"], ["partitions moved", "num"], ["without owner", "num less"], "members"], rows)) : null];
}
const series = (rows, name) => ({ name, points: rows.map(row => [row.start_ms, row.lag_records]) });

async function one(where) {
  const group = where.value, to = timeNow(), from = to - views.span(where).ms, past = { group, from, to };
  const step = Math.max(1, Math.floor((to - from) / 240));
  const [listed, parts, events] = await Promise.all([views.read("groups", { group }), views.read("groups/partitions", { group, limit: PARTITIONS_SHOWN }),
    views.read("groups/rebalances", { ...past, limit: ROWS_MAX })]);
  const worst = parts.items.slice(0, WORST_SHOWN);
  const lags = await Promise.all(worst.map(row => views.read("groups", { ...past, step, topic: row.topic, partition: row.partition, limit: ROWS_MAX })));
  const lines = lags.map((answer, i) => series(answer.items, `${worst[i].topic}-${worst[i].partition}`));
  return [listed.items.length ? head(listed.items[0], parts) : null,
    plots.lines({ title: `${lagHead(worst, "Lag of the worst partitions")}, ${views.span(where).text}`, series: lines, unit: count, from, to, stepMs: lags.length ? lags[0].step_ms : 1 }),
    ...rebalances(events.items, from, to), ...topics(listed.items[0] || {}), ...members(listed.items[0] || {}, parts), ...partitions(parts)];
}
views.add("groups", { title: () => "Consumer groups, worst first", read: all });
views.add("group", { title: where => `Consumer group ${where.value}`, read: one, hasSpans: true });
