// The overview: what the status of serve shows of brokers, skew, plan, execution, groups and the pipeline.
import { ago, bytes, capital, changes, count, counted, lag, lagHead, percent, rate, ratio, share, span, when, zone } from "./units.js";
import { VERDICTS, el, link, none, planLink, put, table } from "./elements.js";
import { timeNow } from "./serve.js";
import { resources } from "./resources.js";

const GROUPS_SHOWN = 15, HOT_SHOWN = 8, EVENTS_SHOWN = 6, REASONS_SHOWN = 6, SILENT_MS = 900000;
export const EXECUTIONS_MARKED = 25;

const staleMs = s => Math.max(300000, 5 * s.window_ms);
function showVerdict(s, now) {
  const d = s.control.decision, end = s.load.window_end_ms;
  // Windows that control has not judged for so long: what it decided and did last says nothing of now.
  const isSilent = d && end - d.decided_ms > Math.max(SILENT_MS, 5 * s.window_ms);
  const stopped = isSilent ? `control silent, last decision ${ago(d.decided_ms, now)}` : end && now - end > staleMs(s) ? `data stopped ${ago(end, now)}` : "";
  let kind = "warn", text = "waiting for the first closed window";
  if (s.control.execution && s.control.execution.under_way) text = ["rebalancing", stopped].filter(Boolean).join(" · ");
  else if (stopped) text = stopped;
  else if (d && d.breached) { kind = "bad"; text = `skewed since ${span(now - d.breach_started_ms)}`; }
  else if (d && d.reason === "balanced") { kind = "good"; text = "balanced"; }
  else if (d) text = d.reason.replaceAll("_", " ");
  else if (end) text = "no decision yet";
  put("verdict", el("span", { class: `badge ${kind}` }, text));
  // A serve for several clusters has the page of each below an address of its own.
  const back = /\/clusters\/[^/]+\/$/.test(location.pathname) ? el("a", { href: "../../" }, "All clusters") : null;
  put("cluster", back, back && " · ", `cluster ${s.kafka_cluster} · mode ${s.mode}`);
  put("age", `${end ? `window of ${span(s.window_ms)} that ended ${ago(end, now)} · ` : ""}times in ${zone()}`);
  // On every page, as its figures are of the newest window, too.
  put("stale", end && now - end > staleMs(s) ? `Old figures: the newest closed window ended ${ago(end, now)}, ${when(end)}. Loads, lags and plans are of that time.` : "");
  document.title = `${text} · ${s.kafka_cluster}`;
}
export function showProblems(s) {
  const entries = Object.entries(s.failures);
  put("problems", ...(entries.length ? [el("h2", {}, "Figures that could not be read now: the last known ones are shown"),
    ...entries.map(([part, reason]) => el("div", {}, `${part}: ${reason}`))] : []));
}
// What the bars of brokers show: what clients ask of them, and with replication, as the trigger adds it up. Where others
// know their replication and a broker does not, its load is unknown: that of clients alone would pass for less to do.
function totals(name, rows) {
  const [own, added] = resources.figures(name).map(figure => b => b[figure.name]);
  const isAdded = Boolean(added) && rows.some(b => own(b) !== null && added(b) !== null);
  return b => !isAdded ? own(b) : own(b) === null || added(b) === null ? null : own(b) + added(b);
}
let loadShown = null, statusShown = null;
function showChoices() {
  put("brokers-by", ...resources.reported().map(one => el("button", { type: "button", value: one.name, "aria-pressed": one.name === loadShown }, one.words)));
}
document.getElementById("brokers-by").addEventListener("click", event => {
  const chosen = event.target.closest("button");
  if (!chosen || !statusShown) return;
  loadShown = chosen.value;
  showBrokers(statusShown, timeNow());
});
function showBrokers(s, now) {
  const rows = s.load.brokers;
  if (!rows.length) return put("brokers", none("No closed window yet: the first figures come one window after the start."));
  loadShown ??= resources.main();
  showChoices();
  const figures = resources.figures(loadShown), own = b => b[figures[0].name], unit = resources.unit(loadShown), isTrigger = s.trigger_resources.includes(loadShown);
  const total = totals(loadShown, rows), columns = resources.reported().map(one => [one, totals(one.name, rows)]);
  const skew = (s.load.skew[loadShown] || { deviation: {} }).deviation;
  const known = rows.map(total).filter(value => value !== null), left = s.left_out["load.brokers"];
  // An even share is the mean, also of brokers that are left out; where capacities are set it is each broker's own.
  const even = b => total(b) && skew[b.broker] > -1 ? total(b) / (1 + skew[b.broker]) : null;
  const evens = rows.map(even).filter(value => value !== null), mean = evens.reduce((sum, value) => sum + value, 0) / (evens.length || 1);
  const isMean = evens.every(value => Math.abs(value - mean) <= 0.001 * mean), mark = b => even(b) ?? (isMean ? mean : null);
  const highest = Math.max(...known, ...(isTrigger ? evens.map(value => s.threshold_enter * value) : []), 1), ceiling = b => b.ceilings[loadShown];
  // A ceiling that is far away would make all bars short: its share is in the legend.
  const near = rows.map(ceiling).filter(value => value !== undefined && value <= 1.5 * highest), top = Math.max(highest, ...near) * 1.04;
  const filled = rows.filter(b => ceiling(b) && total(b) !== null).map(b => total(b) / ceiling(b));
  const body = rows.map(b => {
    const deviation = skew[b.broker], over = isTrigger && deviation !== undefined && 1 + deviation > s.threshold_enter;
    const load = total(b);
    const bar = el("div", { class: "bar" },
      load === null ? null : el("i", { class: "second", style: `width:${share(load, top)}` }),
      load === null ? null : el("i", { class: over ? "over" : "main", style: `width:${share(own(b), top)}` }),
      mark(b) === null ? null : el("b", { style: `left:${share(mark(b), top)}` }),
      isTrigger && mark(b) !== null ? el("b", { class: "band", style: `left:${share(s.threshold_enter * mark(b), top)}` }) : null,
      ceiling(b) <= top ? el("b", { class: "ceiling", style: `left:${share(ceiling(b), top)}` }) : null);
    const off = b.last_sample_ms < s.load.window_start_ms ? el("span", { class: "warn" }, `silent, last ${ago(b.last_sample_ms, now)}`)
      : deviation === undefined ? "–"
      : el("span", { class: over ? "bad" : "" }, percent(deviation));
    return [link(`${b.broker}`, "broker", `${b.broker}`), b.rack || "–", [bar, "wide"], [off, "num"],
      ...columns.map(([one, of]) => [resources.shown(one.name, of(b), b), "num"])];
  });
  put("brokers", table(["broker", "rack", resources.words(loadShown), ["off mean", "num"], ...columns.map(([one]) => [one.words, "num"])], body),
    el("div", { class: "legend" },
      ...figures.map((figure, i) => el("span", {}, el("i", { style: `background:var(--${i ? "second" : "main"})` }), figure.words)),
      isTrigger ? el("span", {}, el("i", { style: "background:var(--bad)" }), `over ${ratio(s.threshold_enter)} × ${isMean ? "mean" : "even share"}`) : null,
      el("span", {}, el("i", { style: "background:var(--ink);opacity:.65;width:2px" }), isMean ? `mean ${unit(mean)}` : "even share of its capacity"),
      isTrigger ? el("span", {}, el("i", { class: "band" }), `skew from ${isMean ? unit(s.threshold_enter * mean) : `${ratio(s.threshold_enter)} × that`} on`) : null,
      filled.length ? el("span", {}, el("i", { class: "ceiling" }), `ceiling: the fullest broker is at ${Math.round(100 * Math.max(...filled))} %`) : null,
      left ? el("span", {}, `${left} more in /api/v1/brokers`) : null), chart(s));
}
// Those that the chart marks, the newest ones: execution.js reads them.
let executionsMarked = [];
export function markExecutions(rows) {
  executionsMarked = rows;
  if (statusShown) showBrokers(statusShown, timeNow());
}
function chart(s) {
  const history = s.load.history;
  if (history.length < 2) return null;
  // As wide as its place, so that its text is as large as other text.
  const width = Math.max(290, document.getElementById("brokers").clientWidth || 860), height = 190, left = 44, right = 12, upper = 12, lower = 26;
  const first = history[0].window_end_ms, last = history[history.length - 1].window_end_ms;
  const top = Math.max(s.threshold_enter * 1.08, ...history.map(point => point.max_over_mean));
  const x = ms => left + (width - left - right) * (ms - first) / (last - first);
  const y = value => upper + (height - upper - lower) * (top - value) / (top - 1 || 1);
  const text = (content, attributes) => el("text", { "font-size": 12, fill: "var(--soft)", ...attributes }, content);
  const clock = ms => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  const level = (value, colour, dash) => [
    el("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: colour, "stroke-dasharray": dash }),
    text(ratio(value), { x: left - 6, y: y(value) + 4, "text-anchor": "end" })];
  const ran = executionsMarked.filter(e => e.started_ms && (e.ended_ms || timeNow()) > first && e.started_ms < last);
  const moves = ran.map(e => {
    const from = Math.max(x(e.started_ms), left), to = Math.min(x(e.ended_ms || last), width - right);
    return el("rect", { x: Math.min(from, width - right - 3), y: upper, width: Math.max(to - from, 3), height: height - upper - lower, fill: "var(--good)", opacity: .3 },
      el("title", {}, `execution ${e.execution_id.slice(0, 12)}`));
  });
  const marked = ran.length < EXECUTIONS_MARKED ? counted(ran.length, "execution", "executions") : `the newest ${ran.length} executions`;
  const path = history.map((point, i) => `${i ? "L" : "M"}${x(point.window_end_ms).toFixed(1)} ${y(point.max_over_mean).toFixed(1)}`).join("");
  return el("div", {}, el("h2", { class: "later" }, "Highest load per mean, bytes in, over time"),
    el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `max/mean of bytes in, window by window; ${marked}` },
      ...moves, ...level(s.threshold_enter, "var(--bad)", "6 4"), ...level(1, "var(--line)", ""),
      el("path", { d: path, fill: "none", stroke: "var(--main)", "stroke-width": 2.5, "stroke-linejoin": "round" }),
      text(clock(first), { x: left, y: height - 6 }), text(clock(last), { x: width - right, y: height - 6, "text-anchor": "end" })),
    ran.length ? el("div", { class: "legend" }, el("span", {}, el("i", { style: "background:var(--good);opacity:.3" }), "under way: ", el("a", { href: "#executions" }, marked))) : null);
}
function showSkew(s) {
  const found = s.load.skew;
  if (!Object.keys(found).length) return put("skew", none("unknown"));
  const first = resources.main(), main = found[first] ? found[first].max_over_mean : null, over = s.trigger_resources.includes(first) && main > s.threshold_enter;
  const rows = Object.keys(found).map(name => {
    const counts = s.trigger_resources.includes(name), high = counts && found[name].max_over_mean > s.threshold_enter;
    return [resources.words(name), [el("span", { class: high ? "bad" : "" }, ratio(found[name].max_over_mean)), "num"],
      [ratio(found[name].coefficient_of_variation), "num"], counts ? `over ${ratio(s.threshold_enter)}` : el("span", { class: "soft" }, "shown only")];
  });
  put("skew", el("div", { class: `big ${main === null ? "soft" : over ? "bad" : "good"}` }, main === null ? "unknown" : ratio(main)),
    el("p", { class: "line soft" }, `${capital(resources.words(first))}. 1 is even; skew counts above ${ratio(s.threshold_enter)} and ends below ${ratio(s.threshold_exit)}.`),
    table(["resource", ["max/mean", "num"], ["variation", "num"], "triggers"], rows));
}
function showDecision(s, now) {
  const d = s.control.decision;
  if (!d) return put("decision", none("None yet: control decides at each closed window."));
  const kind = d.verdict === "plan" ? "bad" : d.reason === "balanced" ? "good" : "warn";
  put("decision", el("div", {}, el("span", { class: `badge ${kind}` }, d.verdict === "plan" ? "plan" : d.reason.replaceAll("_", " ")), " ", none(ago(d.decided_ms, now))),
    el("p", { class: "line" }, d.detail),
    el("p", { class: "line soft" }, `${count(d.brokers_reporting)} of ${counted(d.brokers_expected, "broker", "brokers")} reported`
      + (d.cooldown_end_ms && d.cooldown_end_ms > now ? ` · cooldown for ${span(d.cooldown_end_ms - now)} more` : "")),
    table(["all evaluations", ["count", "num"]], reasons(s.control.decisions || {})), el("p", { class: "line" }, el("a", { href: "#decisions" }, "All decisions")));
}
function reasons(decisions) {
  const counts = {};
  for (const [key, n] of Object.entries(decisions)) {
    const [verdict, reason] = key.split("/"), name = verdict === "plan" ? "plan made" : reason.replaceAll("_", " ");
    counts[name] = (counts[name] || 0) + n;
  }
  return Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, REASONS_SHOWN).map(([name, n]) => [name, [count(n), "num"]]);
}
function price(p) {
  const most = p.cheaper.find(row => row.gain_share >= 0.8), texts = [];
  if (p.duration_ms) texts.push(`takes about ${span(p.duration_ms)} at its throttle`);
  if (most) texts.push(`at least ${Math.round(100 * most.gain_share)} % of the gain for ${bytes(most.bytes_to_move)}`);
  return el("p", { class: "line" }, texts.join("; "));
}
function showPlan(s, now) {
  const p = s.control.plan;
  if (!p) return put("plan", none("None yet."));
  const planned = Object.keys(p).filter(key => key.endsWith("_lower_bound")).map(key => key.slice(0, -"_lower_bound".length));
  const rows = planned.filter(name => p[`${name}_max_over_mean_before`] !== null).map(name =>
    [resources.words(name), [ratio(p[`${name}_max_over_mean_before`]), "num"], [ratio(p[`${name}_max_over_mean_after`]), "num"], [ratio(p[`${name}_lower_bound`]), "num"]]);
  const e = s.control.execution, isTaken = e && e.started_ms > p.created_ms;
  const waits = p.movement_count && !isTaken && p.expires_ms > now;
  put("plan", el("div", {}, waits ? el("span", { class: "badge warn" }, "waits for approval") : null, " ", planLink(p.plan_id), " ", none(`${ago(p.created_ms, now)}`)),
    el("p", { class: "line" }, `${changes(p)}; ${bytes(p.bytes_to_move)} to copy`),
    price(p),
    el("div", { class: "line" }, table(["max/mean", ["before", "num"], ["planned", "num"], ["best possible", "num"]], rows)),
    el("p", { class: "line" }, el("a", { href: `#plan=${p.plan_id}` }, waits ? `Look at it and approve it, within ${span(p.expires_ms - now)}` : "Look at it"), " · ", el("a", { href: "#plans" }, "All plans")));
}
function showExecution(s, now) {
  const e = s.control.execution;
  if (!e) return put("execution", none("Nothing carried out yet."));
  const failed = ["aborted", "refused"].includes(e.event), done = share(e.movements_done, e.movements_total);
  const result = [["before", "before"], ["planned", "predicted"], ["measured", "measured"]].map(([name, at]) => [name, e[`${resources.main()}_max_over_mean_${at}`]])
    .filter(([, value]) => value !== null).flatMap(([name, value], i) => [i ? el("span", { class: "arrow" }, "→") : null, `${name} ${ratio(value)}`]);
  put("execution", el("div", {}, el("span", { class: `badge ${failed ? "bad" : e.ended_ms === null ? "warn" : "good"}` }, e.event.replaceAll("_", " ")), " ", none(ago(e.event_ms, now))),
    el("p", { class: "line" }, link(`Execution ${e.execution_id.slice(0, 12)}`, "execution", e.execution_id), " of plan ", planLink(e.plan_id)),
    el("div", { class: "bar line", role: "progressbar", "aria-label": "Movements made", "aria-valuemin": 0, "aria-valuemax": e.movements_total, "aria-valuenow": e.movements_done }, el("i", { class: "goodfill", style: `width:${done}` })),
    el("p", { class: "line" }, `${count(e.movements_done)} of ${counted(e.movements_total, "partition", "partitions")} · ${bytes(e.bytes_moved)} of ${bytes(e.bytes_total)}`
      + (e.under_way && e.throttle_bytes_per_sec ? ` · throttle ${rate(e.throttle_bytes_per_sec)}` : "")),
    el("p", { class: "line" }, el("span", { class: "soft" }, "max/mean "), ...result.filter(Boolean)),
    table(["when", "what"], s.control.events.slice(0, EVENTS_SHOWN).map(row => [none(ago(row.event_ms, now)), [`${row.event.replaceAll("_", " ")}: ${row.detail}`, "wraps"]])));
}
function showGroups(s) {
  const place = new Map(s.groups.groups.map((row, i) => [row.group, [i, row]]));
  const rows = [...s.groups.topics].sort((a, b) => place.get(a.group)[0] - place.get(b.group)[0]);
  if (!rows.length) return put("groups", none("No consumer group seen yet."));
  const more = rows.length + s.left_out["groups.topics"] - GROUPS_SHOWN;
  const top = Math.max(...rows.map(row => row.lag_records || 0), 1), shown = rows.slice(0, GROUPS_SHOWN);
  put("groups", table(["group", "verdict", "topic", "state", "", [lagHead(shown), "num"], ["waiting for", "num"], ["of retained", "num"]], shown.map(row => {
    const danger = row.retention_ratio !== null && row.retention_ratio > 0.8;
    const verdict = place.get(row.group)[1];
    return [link(row.group, "group", row.group), el("span", { class: VERDICTS[verdict.status], title: verdict.why }, verdict.status), link(row.topic, "topic", row.topic), row.state || "–",
      [el("div", { class: "bar" }, el("i", { class: danger ? "over" : "main", style: `width:${share(row.lag_records || 0, top)}` })), "wide"],
      [lag(row, shown), "num"], [row.lag_seconds === null ? "–" : span(1000 * row.lag_seconds), "num"],
      [el("span", { class: danger ? "bad" : "" }, row.retention_ratio === null ? "–" : `${(100 * row.retention_ratio).toFixed(1)} %`), "num"]];
  })), more > 0 ? el("div", { class: "legend" }, el("a", { href: "#groups" }, `${more} more`)) : null);
}
function showHot(s) {
  const rows = s.load.hot_partitions.slice(0, HOT_SHOWN);
  if (!rows.length) return put("hot", none("unknown"));
  const top = rows[0].bytes_in_per_sec || 1;
  put("hot", table(["partition", "leader", ["", "less"], ["bytes in", "num"]], rows.map(row => [link(`${row.topic}-${row.partition}`, "partition", `${row.topic}/${row.partition}`), link(`${row.broker}`, "broker", `${row.broker}`),
    [el("div", { class: "bar" }, el("i", { class: "main", style: `width:${share(row.bytes_in_per_sec, top)}` })), "wide less"], [rate(row.bytes_in_per_sec), "num"]])));
}
function showStreams(s, now) {
  const rows = s.streams.queries, rejected = Object.entries(s.streams.rejected);
  put("streams", rows.length ? table(["query", "heartbeat", ["last batch", "num"], ["trigger every", "num"], ["not yet read", "num"], ["records in all", "num"], ["came too late", "num"], "watermark"], rows.map(row => {
    const late = now - row.finished_ms > Math.max(60000, 3 * row.trigger_interval_ms);
    return [row.query, el("span", { class: late ? "bad" : "good" }, ago(row.finished_ms, now)), [`${(row.duration_ms / 1000).toFixed(1)} s`, "num"], [span(row.trigger_interval_ms), "num"],
      [count(row.source_lag_records), "num"], [count(row.input_rows_total), "num"], [count(row.late_rows_total), "num"], row.watermark_ms ? ago(row.watermark_ms, now) : "–"];
  })) : none("No heartbeat of the pipeline yet."),
    el("div", { class: "legend" }, el("span", {}, rejected.length ? "rejected records: " + rejected.map(([name, n]) => `${name} ${count(n)}`).join(", ") : "no record rejected"),
      el("a", { href: "metrics", style: "color:var(--main)" }, "metrics"), el("a", { href: "api/status", style: "color:var(--main)" }, "status as JSON")));
}
export function show(s, now) {
  statusShown = s;
  resources.learn(s.resources);
  showVerdict(s, now); showProblems(s); showBrokers(s, now); showSkew(s); showDecision(s, now); showPlan(s, now);
  showExecution(s, now); showGroups(s); showHot(s); showStreams(s, now);
  announce(s);
}
// Scripts of sections take the figures from here; null where nobody may see them.
const announce = figures => document.dispatchEvent(new CustomEvent("status", { detail: figures }));
export function hide() {
  statusShown = null;
  for (const id of ["cluster", "age", "stale", "problems", "brokers", "skew", "decision", "plan", "execution", "groups", "hot", "streams"]) put(id);
  put("verdict", el("span", { class: "badge warn" }, "sign in to see figures"));
  document.title = "Kafka load rebalancer";
  announce(null);
}
