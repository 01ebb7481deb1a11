// The page of a plan (#plan=ID): what it does, what it costs, its movements, and its approval.
import { html } from "./lit-html/lit-html.js";
import { actPlace } from "./acting.js";
import { badge, brokerLink, link, none, partitionLink, put, scroll, section, table } from "./elements.js";
import { routeFrom, routeTo } from "./executions.js";
import { PLANNED, resources } from "./resources.js";
import { answerOf, ask, timeNow } from "./serve.js";
import { ago, bytes, changes, count, counted, percent, rate, span } from "./units.js";

const ROWS_MAX = 200;
const BROKERS_SHOWN = 50;
const AGAIN_MS = 5000;
// Where so much of the bytes is proven to be needed, the figure itself would say nothing more.
const NEAR = 0.99;
const PROMISES = [
  ["max/mean", "max_over_mean"],
  ["bytes", "bytes_copied"],
  ["time", "duration"],
];
const own = id => document.getElementById(id);
const place = actPlace(own("plan-act"));
const search = own("plan-search");
let shown = null;
let known = "";
let looks = 0;
let pages = 0;
let status = null;
let cursor = "";
let above = 0;
// What failed without being refused is read again after a while.
let failedAt = null;

// What the address names, an id or a beginning of one; null where it names nothing.
function named() {
  const text = (/^#plan=([^&]+)/.exec(location.hash) || [])[1] || null;
  try {
    return text && decodeURIComponent(text);
  } catch (problem) {
    return text;
  }
}
// What is typed to approve: two digits behind the point, so that two plans hardly ever ask for the same.
function exact(value) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 999.995 || unit === "TB") return `${unit === "B" ? Math.round(value) : value.toFixed(2)} ${unit}`;
    value /= 1000;
  }
}
// No plan as good copies less than a figure that is proven; null where none is.
function least(plan) {
  if (!plan.least_bytes) return null;
  const bound = plan.least_bytes >= NEAR * plan.bytes_to_move ? "" : ` than ${exact(plan.least_bytes)}`;
  return `No plan as good copies less${bound}.`;
}
async function read(path) {
  const response = await ask(`api/v1/plans/${path}`);
  const answer = await answerOf(response);
  if (response.ok) return answer;
  const text = response.status === 404 ? `There is no such plan: ${answer.detail}` : answer.detail;
  throw Object.assign(new Error(text), { isRefused: response.status !== 503 });
}

function state(plan, now) {
  if (!plan.is_readable)
    return badge("bad", "unreadable: what is kept of it is no plan, so it can't be approved; make a new one");
  const more = plan.waits_for ? `: it ${plan.waits_for}` : "";
  if (plan.waits) return badge("warn", `waits for approval, for ${span(plan.expires_ms - now)} more${more}`);
  if (plan.execution_id) return badge("good", `taken by execution ${plan.execution_id}${more}`);
  if (!plan.movement_count) return badge("soft", "moves nothing");
  if (plan.expires_ms <= now) return badge("soft", "too old to approve: make a new one");
  return badge("soft", "outdated: an execution has begun since it was made");
}
function promises(accuracy) {
  const rows = PROMISES.map(([words, name]) => [words, accuracy && accuracy[name]]).filter(([, row]) => row);
  if (!rows.length) return null;
  const off = ([words, row]) => `${words} by ${percent(row.off_median)} (median), ${percent(row.off_max)} at most`;
  const plans = Math.max(...rows.map(([, row]) => row.count));
  return `Promises of the last ${plans === 1 ? "plan" : `${plans} plans`} were off: ${rows.map(off).join("; ")}.`;
}
function cost(plan) {
  if (!plan.bytes_to_move) return "Nothing is copied: it takes no time at the throttle.";
  const time = plan.duration_ms === null ? "not known: no throttle is set" : `about ${span(plan.duration_ms)}`;
  const throttle = plan.throttle_bytes_per_sec;
  const at = throttle ? ` at the throttle of ${rate(throttle)} per broker` : "";
  return `${exact(plan.bytes_to_move)} to copy; time: ${time}${at}.`;
}
function facts(plan) {
  const lines = [`${changes(plan)}.`, cost(plan), least(plan), promises(status.control.accuracy)];
  return lines.filter(Boolean).map(text => html`<p class="line">${text}</p>`);
}
function list(title, lines, kind) {
  if (!lines.length) return null;
  return html`<div><h3>${title}</h3><ul class=${kind}>${lines.map(line => html`<li>${line}</li>`)}</ul></div>`;
}
function skew(plan) {
  const title = "Highest load per mean";
  return html`<div><h3>${title}</h3>${scroll(title, resources.skewTable("resource", plan, PLANNED))}</div>`;
}
const CHEAPER = [
  ["of the gain", row => `${Math.floor(100 * row.gain_share)} %`],
  ["movements", row => count(row.movements), "num"],
  ["to copy", row => bytes(row.bytes_to_move), "num"],
  ["made by", row => html`<span class="mono">rebalancer plan --max-bytes ${Math.ceil(row.bytes_to_move)}</span>`],
];
const cheaper = plan =>
  plan.cheaper.length ? html`<div>${section("Cheaper plans", plan.cheaper, CHEAPER)}</div>` : null;
function brokers(plan) {
  const most = row => Math.max(row.received_bytes, row.sent_bytes);
  const rows = [...plan.brokers]
    .sort((a, b) => most(b) - most(a) || a.broker - b.broker)
    .slice(0, BROKERS_SHOWN)
    .sort((a, b) => a.broker - b.broker);
  if (!rows.length) return null;
  const load = name => row => {
    if (!(name in row.before && name in row.after)) return "–";
    const write = resources.unit(name);
    return html`<span>${write(row.before[name])}<span class="arrow">→</span>${write(row.after[name])}</span>`;
  };
  const shared = resources.names().filter(name => rows.some(row => name in row.before));
  const columns = [
    ["broker", row => brokerLink(row.broker)],
    ["receives", row => bytes(row.received_bytes), "num"],
    ["sends", row => bytes(row.sent_bytes), "num"],
    ...shared.map(name => [resources.words(name), load(name), "num"]),
  ];
  const more = plan.brokers.length + plan.brokers_left_out - rows.length;
  const left = counted(more, "broker that copies less is", "brokers that copy less are");
  return html`<div>${section("Brokers, before → after", rows, columns)}
    ${more > 0 ? html`<p class="line soft">${left} not shown.</p>` : null}</div>`;
}
function head(plan, now) {
  const outcome = "What the execution did, and what came of it";
  put(
    "plan-head",
    html`${state(plan, now)} ${none(`made ${ago(plan.created_ms, now)}`)}
      <span class="mono whole">${plan.plan_id}</span>
      ${plan.execution_id ? html`<p class="line">${link(outcome, "execution", plan.execution_id)}</p>` : null}`,
  );
}
function approve(plan) {
  const short = plan.plan_id.slice(0, 12);
  const copied = exact(plan.bytes_to_move);
  const moved = counted(plan.movement_count, "partition", "partitions");
  return {
    id: plan.plan_id,
    about: `plan ${short}`,
    verb: "approve",
    typed: copied,
    path: `api/v1/plans/${plan.plan_id}/approve`,
    closed: look,
    time: { name: "begins_ms", text: "Begin no earlier than" },
    ask: `This moves ${moved} and copies ${copied}. Exactly plan ${short} is carried out.`,
  };
}
function show(plan, now) {
  shown = plan;
  head(plan, now);
  const problems = list("What stands in the way", plan.problems, "bad");
  const helpless = list("What moving can't help", plan.diagnosis, "");
  put("plan-figures", html`<div>${facts(plan)}${problems}${helpless}${cheaper(plan)}</div>${skew(plan)}`);
  put("plan-brokers", brokers(plan));
  place.offer(plan.waits ? approve(plan) : null);
  own("plan-body").hidden = false;
  first();
}
function clear(problem) {
  shown = null;
  put("plan-head", problem ? html`<p class="bad whole">${problem}</p>` : null);
  for (const id of ["plan-figures", "plan-brokers", "plan-movements"]) put(id);
  place.offer(null);
  own("plan-body").hidden = true;
}

const MOVEMENTS = [
  ["partition", partitionLink],
  ["from", routeFrom],
  ["to", routeTo],
  ["to copy", row => bytes(row.bytes_to_move), "num"],
  ["why", row => row.reason || "–", "why"],
];
async function movements() {
  const id = shown.plan_id;
  const turn = (pages += 1);
  const field = name => search.elements.namedItem(name).value.trim();
  const query = new URLSearchParams({ limit: ROWS_MAX, order: field("order") });
  if (field("topic")) query.set("topic", field("topic"));
  if (cursor) query.set("cursor", cursor);
  try {
    const page = await read(`${id}/movements?${query}`);
    if (turn !== pages || !shown || id !== shown.plan_id) return;
    const rows = page.items;
    const others = page.total - rows.length;
    const more = others ? `; ${counted(others, "other", "others")}` : "";
    const range = `${count(above + 1)} to ${count(above + rows.length)} of ${count(page.total)}${more}`;
    put("plan-movements", rows.length ? table(rows, MOVEMENTS) : none("No movement has such a topic."));
    own("plan-shown").textContent = rows.length ? range : "";
    own("plan-first").hidden = !above;
    own("plan-next").hidden = !page.next_cursor;
    own("plan-next").value = page.next_cursor || "";
  } catch (problem) {
    if (turn !== pages) return;
    note(problem);
    put("plan-movements", html`<p class="bad">${problem.message}</p>`);
  }
}
function first() {
  cursor = "";
  above = 0;
  return movements();
}

function frame() {
  own("plan-look").hidden = !status || !named();
}
function note(problem) {
  if (!problem.isRefused) failedAt = Date.now();
}
async function look() {
  failedAt = null;
  const id = named();
  const turn = (looks += 1);
  if (place.isOpen || !id) return;
  if (!/^[0-9a-f]{1,64}$/.test(id)) {
    clear(`There is no such plan: the id of a plan has up to 64 characters of 0-9 a-f, and ${id} is none.`);
    return;
  }
  try {
    const plan = await read(id);
    if (turn !== looks || place.isOpen) return;
    show(plan, timeNow());
  } catch (problem) {
    if (turn !== looks) return;
    note(problem);
    clear(problem.message);
  }
}
// A plan is read whole: only where it, or what has become of it, is another one.
function stateOf({ plan, execution }) {
  const isOver = plan && plan.expires_ms <= timeNow();
  const isEndorsed = execution && execution.event === "endorsed";
  return JSON.stringify([
    named(),
    plan && [plan.plan_id, plan.created_ms, isOver],
    execution && [execution.execution_id, isEndorsed, execution.started_ms, execution.ended_ms],
  ]);
}
document.addEventListener("status", event => {
  status = event.detail;
  frame();
  if (!status || !named()) {
    known = "";
    looks += 1;
    if (!place.isOpen) clear();
    return;
  }
  const now = stateOf(status.control);
  const isDue = now !== known || (failedAt !== null && Date.now() - failedAt > AGAIN_MS);
  if (isDue && !place.isOpen) {
    known = now;
    look();
  } else if (shown) head(shown, timeNow());
});
window.addEventListener("hashchange", () => {
  place.reset();
  frame();
  if (!status || !named()) return;
  window.scrollTo(0, 0);
  look();
});
search.addEventListener("submit", event => {
  event.preventDefault();
  if (shown) first();
});
search.addEventListener("change", () => {
  if (shown) first();
});
own("plan-first").addEventListener("click", first);
own("plan-next").addEventListener("click", event => {
  above += ROWS_MAX;
  cursor = event.currentTarget.value;
  movements();
});

const maker = actPlace(own("plan-make"));
const MAKE = {
  id: "plan",
  about: "a new plan",
  verb: "make a plan",
  typed: "plan",
  path: "api/v1/plans",
  ask:
    "This makes the plan that control would make now, of the newest windows. " +
    "Nothing moves until somebody approves it.",
};
document.addEventListener("status", () => maker.offer(status && MAKE));
window.addEventListener("hashchange", () => {
  maker.reset();
  maker.offer(status && MAKE);
});
