// The overview: what the status of serve shows of brokers, skew, plan, execution, groups and the pipeline.
import { html, nothing, svg } from "./lit-html/lit-html.js";
import {
  VERDICTS,
  anchor,
  badge,
  bar,
  brokerLink,
  fill,
  link,
  none,
  partitionLink,
  planLink,
  put,
  table,
} from "./elements.js";
import { clock, label, level, path, shade } from "./plot.js";
import { PLANNED, resources } from "./resources.js";
import { timeNow } from "./serve.js";
import {
  ago,
  bytes,
  capital,
  changes,
  count,
  counted,
  lag,
  lagHead,
  percent,
  rate,
  ratio,
  share,
  signedPercent,
  span,
  when,
  words,
  zone,
} from "./units.js";

const GROUPS_SHOWN = 15;
const HOT_SHOWN = 8;
const EVENTS_SHOWN = 6;
const REASONS_SHOWN = 6;
const SILENT_MS = 900000;
export const EXECUTIONS_MARKED = 25;
let loadShown = null;
let statusShown = null;
// Those that the chart marks, the newest ones: execution.js reads them.
let executionsMarked = [];

const line = (content, kind = "") => html`<p class="line ${kind}">${content}</p>`;
const staleMs = s => Math.max(300000, 5 * s.window_ms);
// What there is to say of the whole: its kind and its words.
function verdictOf(s, now) {
  const d = s.control.decision;
  const end = s.load.window_end_ms;
  // Windows that control has not judged for so long: what it decided and did last says nothing of now.
  const isSilent = d && end - d.decided_ms > Math.max(SILENT_MS, 5 * s.window_ms);
  const isStale = end && now - end > staleMs(s);
  const silent = isSilent ? `control silent, last decision ${ago(d.decided_ms, now)}` : "";
  const stopped = silent || (isStale ? `data stopped ${ago(end, now)}` : "");
  const execution = s.control.execution;
  if (execution && execution.under_way) return ["warn", ["rebalancing", stopped].filter(Boolean).join(" · ")];
  if (stopped) return ["warn", stopped];
  if (d && d.breached) return ["bad", `skewed since ${span(now - d.breach_started_ms)}`];
  if (d) return [d.reason === "balanced" ? "good" : "warn", words(d.reason)];
  return ["warn", end ? "no decision yet" : "waiting for the first closed window"];
}
function showVerdict(s, now) {
  const end = s.load.window_end_ms;
  const [kind, text] = verdictOf(s, now);
  put("verdict", badge(kind, text));
  // A serve for several clusters has the page of each below an address of its own.
  const isOneOfSeveral = /\/clusters\/[^/]+\/$/.test(location.pathname);
  const back = isOneOfSeveral ? html`<a href="../../">All clusters</a> · ` : null;
  put("cluster", back, `cluster ${s.kafka_cluster} · mode ${s.mode}`);
  const newest = end ? `window of ${span(s.window_ms)} that ended ${ago(end, now)} · ` : "";
  put("age", `${newest}times in ${zone()}`);
  // On every page, as its figures are of the newest window, too.
  const ended = `the newest closed window ended ${ago(end, now)}, ${when(end)}`;
  const isStale = end && now - end > staleMs(s);
  put("stale", isStale ? `Old figures: ${ended}. Loads, lags and plans are of that time.` : "");
  document.title = `${text} · ${s.kafka_cluster}`;
}
export function showProblems(s) {
  const entries = Object.entries(s.failures);
  if (!entries.length) return put("problems");
  const reasons = entries.map(([part, reason]) => html`<div>${part}: ${reason}</div>`);
  put("problems", html`<h2>Figures that could not be read now: the last known ones are shown</h2>${reasons}`);
}

// What the bars of brokers show: what clients ask of them, and with replication, as the trigger adds it up. Where
// others know their replication and a broker does not, its load is unknown: that of clients alone would pass for less
// to do.
function totals(name, rows) {
  const [own, added] = resources.figures(name).map(figure => b => b[figure.name]);
  const isAdded = Boolean(added) && rows.some(b => own(b) !== null && added(b) !== null);
  if (!isAdded) return own;
  return b => (own(b) === null || added(b) === null ? null : own(b) + added(b));
}
function showChoices() {
  const choose = name => {
    loadShown = name;
    if (statusShown) showBrokers(statusShown, timeNow());
  };
  const button = ({ name, words }) =>
    html`<button type="button" aria-pressed=${name === loadShown} @click=${() => choose(name)}>${words}</button>`;
  put("brokers-by", resources.reported().map(button));
}
// Where the marks of the bars stand, and how long the longest bar is.
function scaleOf(s, rows) {
  const total = totals(loadShown, rows);
  const isTrigger = s.trigger_resources.includes(loadShown);
  const skew = (s.load.skew[loadShown] || { deviation: {} }).deviation;
  const ceiling = b => b.ceilings[loadShown];
  // An even share is the mean, also of brokers that are left out; where capacities are set it is each broker's own.
  const even = b => (total(b) && skew[b.broker] > -1 ? total(b) / (1 + skew[b.broker]) : null);
  const evens = rows.map(even).filter(value => value !== null);
  const mean = evens.reduce((sum, value) => sum + value, 0) / (evens.length || 1);
  const isMean = evens.every(value => Math.abs(value - mean) <= 0.001 * mean);
  const known = rows.map(total).filter(value => value !== null);
  const thresholds = isTrigger ? evens.map(value => s.threshold_enter * value) : [];
  const highest = Math.max(...known, ...thresholds, 1);
  // A ceiling that is far away would make all bars short: its share is in the legend.
  const near = rows.map(ceiling).filter(value => value !== undefined && value <= 1.5 * highest);
  const filled = rows.filter(b => ceiling(b) && total(b) !== null).map(b => total(b) / ceiling(b));
  const mark = b => even(b) ?? (isMean ? mean : null);
  const top = Math.max(highest, ...near) * 1.04;
  return { total, isTrigger, skew, ceiling, mean, isMean, mark, top, filled };
}
function showBrokers(s, now) {
  const rows = s.load.brokers;
  if (!rows.length)
    return put("brokers", none("No closed window yet: the first figures come one window after the start."));
  loadShown ??= resources.main();
  showChoices();
  const scale = scaleOf(s, rows);
  const { total, isTrigger, skew, ceiling, mark, top } = scale;
  const own = b => b[resources.figures(loadShown)[0].name];
  const isOver = b => isTrigger && skew[b.broker] !== undefined && 1 + skew[b.broker] > s.threshold_enter;
  const stroke = (kind, value) => html`<b class=${kind || nothing} style="left:${share(value, top)}"></b>`;
  const load = b =>
    bar(
      total(b) === null ? null : [fill("second", total(b), top), fill(isOver(b) ? "over" : "main", own(b), top)],
      mark(b) === null ? null : stroke("", mark(b)),
      isTrigger && mark(b) !== null ? stroke("band", s.threshold_enter * mark(b)) : null,
      ceiling(b) <= top ? stroke("ceiling", ceiling(b)) : null,
    );
  const off = b => {
    if (b.last_sample_ms < s.load.window_start_ms)
      return html`<span class="warn">silent, last ${ago(b.last_sample_ms, now)}</span>`;
    if (skew[b.broker] === undefined) return "–";
    return html`<span class=${isOver(b) ? "bad" : ""}>${signedPercent(skew[b.broker])}</span>`;
  };
  const sums = new Map(resources.reported().map(one => [one.name, totals(one.name, rows)]));
  const columns = [
    ["broker", b => brokerLink(b.broker)],
    ["rack", b => b.rack || "–"],
    [resources.words(loadShown), load, "wide"],
    ["off mean", off, "num"],
    ...resources.brokerColumns((one, b) => sums.get(one.name)(b)),
  ];
  put("brokers", table(rows, columns), legend(s, scale), chart(s));
}
function legend(s, { isTrigger, isMean, mean, filled }) {
  const unit = resources.unit(loadShown);
  const threshold = ratio(s.threshold_enter);
  const begin = isMean ? unit(s.threshold_enter * mean) : `${threshold} × that`;
  const fullest = percent(Math.max(...filled));
  const left = s.left_out["load.brokers"];
  const figures = resources
    .figures(loadShown)
    .map((figure, i) => html`<span><i style="background:var(--${i ? "second" : "main"})"></i>${figure.words}</span>`);
  return html`<div class="legend">
    ${figures}
    ${
      isTrigger
        ? html`<span><i style="background:var(--bad)"></i>over ${threshold} × ${isMean ? "mean" : "even share"}</span>`
        : null
    }
    <span><i style="background:var(--ink);opacity:.65;width:2px"></i
      >${isMean ? `mean ${unit(mean)}` : "even share of its capacity"}</span>
    ${isTrigger ? html`<span><i class="band"></i>skew from ${begin} on</span>` : null}
    ${filled.length ? html`<span><i class="ceiling"></i>ceiling: the fullest broker is at ${fullest}</span>` : null}
    ${left ? html`<span>${left} more in /api/v1/brokers</span>` : null}
  </div>`;
}
export function markExecutions(rows) {
  executionsMarked = rows;
  if (statusShown) showBrokers(statusShown, timeNow());
}
function chart(s) {
  const history = s.load.history;
  if (history.length < 2) return null;
  // As wide as its place, so that its text is as large as other text.
  const width = Math.max(290, document.getElementById("brokers").clientWidth || 860);
  const height = 190;
  const [left, right, upper, lower] = [44, width - 12, 12, height - 26];
  const first = history[0].window_end_ms;
  const last = history[history.length - 1].window_end_ms;
  const top = Math.max(s.threshold_enter * 1.08, ...history.map(point => point.max_over_mean));
  const x = ms => left + ((right - left) * (ms - first)) / (last - first);
  const y = value => upper + ((lower - upper) * (top - value)) / (top - 1 || 1);
  const marked = value => label(ratio(value), left - 6, y(value) + 4, "end");
  const ran = executionsMarked.filter(e => e.started_ms && (e.ended_ms || timeNow()) > first && e.started_ms < last);
  const moves = ran.map(e => {
    const begin = Math.min(Math.max(x(e.started_ms), left), right - 3);
    const end = Math.min(x(e.ended_ms || last), right);
    return shade(begin, end, upper, lower - upper, `execution ${e.execution_id.slice(0, 12)}`);
  });
  const number = counted(ran.length, "execution", "executions");
  const executions = ran.length < EXECUTIONS_MARKED ? number : `the newest ${ran.length} executions`;
  const points = history.map(point => [point.window_end_ms, point.max_over_mean]);
  const lines = svg`${moves}
    ${level(left, right, y(s.threshold_enter), "var(--bad)", "6 4")}${marked(s.threshold_enter)}
    ${level(left, right, y(1), "var(--line)")}${marked(1)}
    ${path(points, x, y, "var(--main)", 2.5)}
    ${label(clock(first), left, height - 6)}${label(clock(last), right, height - 6, "end")}`;
  const underWay = html`<div class="legend"><span><i style="background:var(--good);opacity:.3"></i
    >under way: <a href="#executions">${executions}</a></span></div>`;
  return html`<div><h2 class="later">Highest load per mean, bytes in, over time</h2>
    <svg viewBox="0 0 ${width} ${height}" role="img"
      aria-label="max/mean of bytes in, window by window; ${executions}">${lines}</svg>
    ${ran.length ? underWay : null}</div>`;
}
function showSkew(s) {
  const found = s.load.skew;
  if (!Object.keys(found).length) return put("skew", none("unknown"));
  const counts = name => s.trigger_resources.includes(name);
  const isOver = name => counts(name) && found[name].max_over_mean > s.threshold_enter;
  const first = resources.main();
  const [enter, exit] = [ratio(s.threshold_enter), ratio(s.threshold_exit)];
  const main = found[first]?.max_over_mean ?? null;
  const kind = main === null ? "soft" : isOver(first) ? "bad" : "good";
  const columns = [
    ["resource", resources.words],
    [
      "max/mean",
      name => html`<span class=${isOver(name) ? "bad" : ""}>${ratio(found[name].max_over_mean)}</span>`,
      "num",
    ],
    ["variation", name => ratio(found[name].coefficient_of_variation), "num"],
    ["triggers", name => (counts(name) ? `over ${enter}` : none("shown only"))],
  ];
  const meaning = `1 is even; skew counts above ${enter} and ends below ${exit}.`;
  put(
    "skew",
    html`<div class="big ${kind}">${main === null ? "unknown" : ratio(main)}</div>`,
    line(`${capital(resources.words(first))}. ${meaning}`, "soft"),
    table(Object.keys(found), columns),
  );
}
function showDecision(s, now) {
  const d = s.control.decision;
  if (!d) return put("decision", none("None yet: control decides at each closed window."));
  const kind = d.verdict === "plan" ? "bad" : d.reason === "balanced" ? "good" : "warn";
  const cools = d.cooldown_end_ms && d.cooldown_end_ms > now;
  const reported = `${count(d.brokers_reporting)} of ${counted(d.brokers_expected, "broker", "brokers")} reported`;
  const cooldown = cools ? ` · cooldown for ${span(d.cooldown_end_ms - now)} more` : "";
  put(
    "decision",
    html`<div>${badge(kind, d.verdict === "plan" ? "plan" : words(d.reason))} ${none(ago(d.decided_ms, now))}</div>`,
    line(d.detail),
    line(reported + cooldown, "soft"),
    table(reasons(s.control.decisions || {}), [
      ["all evaluations", ([name]) => name],
      ["count", ([, number]) => count(number), "num"],
    ]),
    line(html`<a href="#decisions">All decisions</a>`),
  );
}
function reasons(decisions) {
  const counts = {};
  for (const [key, number] of Object.entries(decisions)) {
    const [verdict, reason] = key.split("/");
    const name = verdict === "plan" ? "plan made" : words(reason);
    counts[name] = (counts[name] || 0) + number;
  }
  return Object.entries(counts)
    .sort((a, b) => b[1] - a[1])
    .slice(0, REASONS_SHOWN);
}
function price(p) {
  const most = p.cheaper.find(row => row.gain_share >= 0.8);
  const texts = [];
  if (p.duration_ms) texts.push(`takes about ${span(p.duration_ms)} at its throttle`);
  if (most) texts.push(`at least ${percent(most.gain_share)} of the gain for ${bytes(most.bytes_to_move)}`);
  return line(texts.join("; "));
}
function showPlan(s, now) {
  const p = s.control.plan;
  if (!p) return put("plan", none("None yet."));
  const e = s.control.execution;
  const isTaken = e && e.started_ms > p.created_ms;
  const waits = p.movement_count && !isTaken && p.expires_ms > now;
  const look = waits ? `Look at it and approve it, within ${span(p.expires_ms - now)}` : "Look at it";
  put(
    "plan",
    html`<div>${waits ? badge("warn", "waits for approval") : null} ${planLink(p.plan_id)}
      ${none(ago(p.created_ms, now))}</div>`,
    line(`${changes(p)}; ${bytes(p.bytes_to_move)} to copy`),
    price(p),
    html`<div class="line">${resources.skewTable("max/mean", p, PLANNED)}</div>`,
    line([anchor(`#plan=${p.plan_id}`, look), " · ", html`<a href="#plans">All plans</a>`]),
  );
}
function showExecution(s, now) {
  const e = s.control.execution;
  if (!e) return put("execution", none("Nothing carried out yet."));
  const isFailed = ["aborted", "refused"].includes(e.event);
  const kind = isFailed ? "bad" : e.ended_ms === null ? "warn" : "good";
  const throttle = e.under_way && e.throttle_bytes_per_sec ? ` · throttle ${rate(e.throttle_bytes_per_sec)}` : "";
  const made = `${count(e.movements_done)} of ${counted(e.movements_total, "partition", "partitions")}`;
  const figures = [
    ["before", "before"],
    ["planned", "predicted"],
    ["measured", "measured"],
  ]
    .map(([name, at]) => [name, e[`${resources.main()}_max_over_mean_${at}`]])
    .filter(([, value]) => value !== null)
    .map(([name, value], i) => [i ? html`<span class="arrow">→</span>` : null, `${name} ${ratio(value)}`]);
  put(
    "execution",
    html`<div>${badge(kind, words(e.event))} ${none(ago(e.event_ms, now))}</div>`,
    line([
      link(`Execution ${e.execution_id.slice(0, 12)}`, "execution", e.execution_id),
      " of plan ",
      planLink(e.plan_id),
    ]),
    html`<div class="bar line" role="progressbar" aria-label="Movements made" aria-valuemin="0"
      aria-valuemax=${e.movements_total} aria-valuenow=${e.movements_done}
      >${fill("goodfill", e.movements_done, e.movements_total)}</div>`,
    line(`${made} · ${bytes(e.bytes_moved)} of ${bytes(e.bytes_total)}${throttle}`),
    line([none("max/mean "), figures]),
    table(s.control.events.slice(0, EVENTS_SHOWN), [
      ["when", row => none(ago(row.event_ms, now))],
      ["what", row => `${words(row.event)}: ${row.detail}`, "wraps"],
    ]),
  );
}
function showGroups(s) {
  const place = new Map(s.groups.groups.map((row, i) => [row.group, [i, row]]));
  const rows = [...s.groups.topics].sort((a, b) => place.get(a.group)[0] - place.get(b.group)[0]);
  if (!rows.length) return put("groups", none("No consumer group seen yet."));
  const more = rows.length + s.left_out["groups.topics"] - GROUPS_SHOWN;
  const top = Math.max(...rows.map(row => row.lag_records || 0), 1);
  const shown = rows.slice(0, GROUPS_SHOWN);
  const isInDanger = row => row.retention_ratio !== null && row.retention_ratio > 0.8;
  const verdict = row => {
    const { status, why } = place.get(row.group)[1];
    return html`<span class=${VERDICTS[status] || nothing} title=${why}>${status}</span>`;
  };
  const retained = row => {
    const text = row.retention_ratio === null ? "–" : `${(100 * row.retention_ratio).toFixed(1)} %`;
    return html`<span class=${isInDanger(row) ? "bad" : ""}>${text}</span>`;
  };
  const columns = [
    ["group", row => link(row.group, "group", row.group)],
    ["verdict", verdict],
    ["topic", row => link(row.topic, "topic", row.topic)],
    ["state", row => row.state || "–"],
    ["", row => bar(fill(isInDanger(row) ? "over" : "main", row.lag_records || 0, top)), "wide"],
    [lagHead(shown), row => lag(row, shown), "num"],
    ["waiting for", row => (row.lag_seconds === null ? "–" : span(1000 * row.lag_seconds)), "num"],
    ["of retained", retained, "num"],
  ];
  const others = html`<div class="legend"><a href="#groups">${more} more</a></div>`;
  put("groups", table(shown, columns), more > 0 ? others : null);
}
function showHot(s) {
  const rows = s.load.hot_partitions.slice(0, HOT_SHOWN);
  if (!rows.length) return put("hot", none("unknown"));
  const top = rows[0].bytes_in_per_sec || 1;
  const columns = [
    ["partition", partitionLink],
    ["leader", row => brokerLink(row.broker)],
    ["", row => bar(fill("main", row.bytes_in_per_sec, top)), "wide less"],
    ["bytes in", row => rate(row.bytes_in_per_sec), "num"],
  ];
  put("hot", table(rows, columns));
}
function showStreams(s, now) {
  const rows = s.streams.queries;
  const rejected = Object.entries(s.streams.rejected).map(([name, number]) => `${name} ${count(number)}`);
  const heartbeat = row => {
    const isLate = now - row.finished_ms > Math.max(60000, 3 * row.trigger_interval_ms);
    return html`<span class=${isLate ? "bad" : "good"}>${ago(row.finished_ms, now)}</span>`;
  };
  const columns = [
    ["query", row => row.query],
    ["heartbeat", heartbeat],
    ["last batch", row => `${(row.duration_ms / 1000).toFixed(1)} s`, "num"],
    ["trigger every", row => span(row.trigger_interval_ms), "num"],
    ["not yet read", row => count(row.source_lag_records), "num"],
    ["records in all", row => count(row.input_rows_total), "num"],
    ["came too late", row => count(row.late_rows_total), "num"],
    ["watermark", row => (row.watermark_ms ? ago(row.watermark_ms, now) : "–")],
  ];
  put(
    "streams",
    rows.length ? table(rows, columns) : none("No heartbeat of the pipeline yet."),
    html`<div class="legend">
      <span>${rejected.length ? `rejected records: ${rejected.join(", ")}` : "no record rejected"}</span>
      <a href="metrics">metrics</a><a href="api/status">status as JSON</a>
    </div>`,
  );
}

export function show(s, now) {
  statusShown = s;
  resources.learn(s.resources);
  showVerdict(s, now);
  showProblems(s);
  showBrokers(s, now);
  showSkew(s);
  showDecision(s, now);
  showPlan(s, now);
  showExecution(s, now);
  showGroups(s);
  showHot(s);
  showStreams(s, now);
  announce(s);
}
// Scripts of sections take the figures from here; null where nobody may see them.
const announce = figures => document.dispatchEvent(new CustomEvent("status", { detail: figures }));
const PLACES = [
  "cluster",
  "age",
  "stale",
  "problems",
  "brokers",
  "skew",
  "decision",
  "plan",
  "execution",
  "groups",
  "hot",
  "streams",
];
export function hide() {
  statusShown = null;
  for (const id of PLACES) put(id);
  put("verdict", badge("warn", "sign in to see figures"));
  document.title = "Kafka load rebalancer";
  announce(null);
}
