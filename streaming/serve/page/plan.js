// The page of a plan (#plan=ID): what it does, what it costs, its movements, and its approval.
import { ago, bytes, changes, count, counted, rate, span } from "./units.js";
import { el, link, none, put, table } from "./elements.js";
import { answerOf, ask, timeNow } from "./serve.js";
import { resources } from "./resources.js";
import { views } from "./views.js";
import { actPlace } from "./acting.js";

const ROWS_MAX = 200, BROKERS_SHOWN = 50, AGAIN_MS = 5000;
// Where so much of the bytes is proven to be needed, the figure itself would say nothing more.
const NEAR = 0.99;
const PROMISES = [["max/mean", "max_over_mean"], ["bytes", "bytes_copied"], ["time", "duration"]];
const own = id => document.getElementById(id);
const place = actPlace(own("plan-act")), search = own("plan-search");
let shown = null, known = "", looks = 0, pages = 0, status = null, cursor = "", above = 0;
// What failed without being refused is read again after a while.
let failedAt = null;

// What the address names, an id or a beginning of one; null where it names nothing.
function named() {
  const text = (/^#plan=([^&]+)/.exec(location.hash) || [])[1] || null;
  try { return text && decodeURIComponent(text); } catch (problem) { return text; }
}
// What is typed to approve: two digits behind the point, so that two plans hardly ever ask for the same.
function exact(value) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 999.995 || unit === "TB") return `${unit === "B" ? Math.round(value) : value.toFixed(2)} ${unit}`;
    value /= 1000;
  }
}
async function read(path) {
  const response = await ask(`api/v1/plans/${path}`), answer = await answerOf(response);
  if (response.ok) return answer;
  const text = response.status === 404 ? `There is no such plan: ${answer.detail}` : answer.detail;
  throw Object.assign(new Error(text), { isRefused: response.status !== 503 });
}

function state(plan, now) {
  if (!plan.is_readable) return ["bad", "unreadable: what is kept of it is no plan, so it can't be approved; make a new one"];
  const more = plan.waits_for ? `: it ${plan.waits_for}` : "";
  if (plan.waits) return ["warn", `waits for approval, for ${span(plan.expires_ms - now)} more${more}`];
  if (plan.execution_id) return ["good", `taken by execution ${plan.execution_id}${more}`];
  if (!plan.movement_count) return ["soft", "moves nothing"];
  return ["soft", plan.expires_ms <= now ? "too old to approve: make a new one" : "outdated: an execution has begun since it was made"];
}
function promises(accuracy) {
  const rows = PROMISES.map(([words, name]) => [words, accuracy && accuracy[name]]).filter(([, row]) => row);
  if (!rows.length) return null;
  const each = rows.map(([words, row]) => `${words} by ${Math.round(100 * row.off_median)} % (median), ${Math.round(100 * row.off_max)} % at most`);
  const plans = Math.max(...rows.map(([, row]) => row.count));
  return `Promises of the last ${plans === 1 ? "plan" : `${plans} plans`} were off: ${each.join("; ")}.`;
}
function facts(plan) {
  const time = plan.duration_ms === null ? "not known: no throttle is set" : `about ${span(plan.duration_ms)}`;
  const throttle = plan.throttle_bytes_per_sec ? ` at the throttle of ${rate(plan.throttle_bytes_per_sec)} per broker` : "";
  const cost = plan.bytes_to_move ? `${exact(plan.bytes_to_move)} to copy; time: ${time}${throttle}.` : "Nothing is copied: it takes no time at the throttle.";
  const least = plan.least_bytes ? `No plan as good copies less${plan.least_bytes >= NEAR * plan.bytes_to_move ? "" : ` than ${exact(plan.least_bytes)}`}.` : null;
  const lines = [`${changes(plan)}.`, cost, least, promises(status.control.accuracy)];
  return lines.filter(Boolean).map(text => el("p", { class: "line" }, text));
}
const list = (title, lines, kind) => lines.length
  ? el("div", {}, el("h3", {}, title), el("ul", { class: kind }, ...lines.map(line => el("li", {}, line)))) : null;
function skew(plan) {
  const rows = views.skew(plan, ["max_over_mean_before", "max_over_mean_after", "lower_bound"]);
  return el("div", {}, el("h3", {}, "Highest load per mean"), views.scroll("Highest load per mean",
    table(["resource", ["before", "num"], ["planned", "num"], ["best possible", "num"]], rows)));
}
function cheaper(plan) {
  if (!plan.cheaper.length) return null;
  const rows = plan.cheaper.map(row => [`${Math.floor(100 * row.gain_share)} %`, [count(row.movements), "num"], [bytes(row.bytes_to_move), "num"],
    el("span", { class: "mono" }, `rebalancer plan --max-bytes ${Math.ceil(row.bytes_to_move)}`)]);
  return el("div", {}, el("h3", {}, "Cheaper plans"),
    views.scroll("Cheaper plans", table(["of the gain", ["movements", "num"], ["to copy", "num"], "made by"], rows)));
}
function brokers(plan) {
  const most = row => Math.max(row.received_bytes, row.sent_bytes);
  const rows = [...plan.brokers].sort((a, b) => most(b) - most(a) || a.broker - b.broker).slice(0, BROKERS_SHOWN).sort((a, b) => a.broker - b.broker);
  if (!rows.length) return null;
  const shared = resources.names().filter(name => rows.some(row => name in row.before));
  const load = (row, name) => name in row.before && name in row.after
    ? el("span", {}, resources.unit(name)(row.before[name]), el("span", { class: "arrow" }, "→"), resources.unit(name)(row.after[name])) : "–";
  const more = plan.brokers.length + plan.brokers_left_out - rows.length;
  return el("div", {}, el("h3", {}, "Brokers, before → after"), views.scroll("Brokers, before and after",
    table(["broker", ["receives", "num"], ["sends", "num"], ...shared.map(name => [resources.words(name), "num"])],
      rows.map(row => [link(`${row.broker}`, "broker", `${row.broker}`), [bytes(row.received_bytes), "num"], [bytes(row.sent_bytes), "num"], ...shared.map(name => [load(row, name), "num"])]))),
  more > 0 ? el("p", { class: "line soft" }, `${counted(more, "broker that copies less is", "brokers that copy less are")} not shown.`) : null);
}
function head(plan, now) {
  const [kind, text] = state(plan, now);
  put("plan-head", el("span", { class: `badge ${kind}` }, text), " ", none(`made ${ago(plan.created_ms, now)}`), " ", el("span", { class: "mono whole" }, plan.plan_id),
    plan.execution_id ? el("p", { class: "line" }, link("What the execution did, and what came of it", "execution", plan.execution_id)) : null);
}
function show(plan, now) {
  shown = plan;
  head(plan, now);
  put("plan-figures", el("div", {}, ...facts(plan), list("What stands in the way", plan.problems, "bad"), list("What moving can't help", plan.diagnosis, ""), cheaper(plan)),
    skew(plan));
  put("plan-brokers", brokers(plan));
  place.offer(plan.waits ? {
    id: plan.plan_id, about: `plan ${plan.plan_id.slice(0, 12)}`, verb: "approve", typed: exact(plan.bytes_to_move), path: `api/v1/plans/${plan.plan_id}/approve`, closed: look,
    time: { name: "begins_ms", text: "Begin no earlier than" },
    ask: `This moves ${counted(plan.movement_count, "partition", "partitions")} and copies ${exact(plan.bytes_to_move)}. Exactly plan ${plan.plan_id.slice(0, 12)} is carried out.`,
  } : null);
  own("plan-body").hidden = false;
  first();
}
function clear(...text) {
  shown = null;
  put("plan-head", ...text);
  for (const id of ["plan-figures", "plan-brokers", "plan-movements"]) put(id);
  place.offer(null);
  own("plan-body").hidden = true;
}

const route = row => row.kind === "log_dir" ? [`${row.old_log_dir} on broker ${row.old_replicas}`, row.new_log_dir] : [row.old_replicas.join(", "), row.new_replicas.join(", ")];
async function movements() {
  const id = shown.plan_id, turn = pages += 1, fields = search.elements;
  const query = new URLSearchParams({ limit: ROWS_MAX, order: fields.namedItem("order").value });
  const topic = fields.namedItem("topic").value.trim();
  if (topic) query.set("topic", topic);
  if (cursor) query.set("cursor", cursor);
  try {
    const page = await read(`${id}/movements?${query}`);
    if (turn !== pages || !shown || id !== shown.plan_id) return;
    const rows = page.items.map(row => [link(`${row.topic}-${row.partition}`, "partition", `${row.topic}/${row.partition}`), ...route(row), [bytes(row.bytes_to_move), "num"], [row.reason || "–", "why"]]);
    const last = above + rows.length, others = page.total - rows.length;
    put("plan-movements", rows.length ? table(["partition", "from", "to", ["to copy", "num"], "why"], rows) : none("No movement has such a topic."));
    own("plan-shown").textContent = rows.length ? `${count(above + 1)} to ${count(last)} of ${count(page.total)}${others ? `; ${counted(others, "other", "others")}` : ""}` : "";
    own("plan-first").hidden = !above;
    own("plan-next").hidden = !page.next_cursor;
    own("plan-next").value = page.next_cursor || "";
  } catch (problem) {
    if (turn !== pages) return;
    note(problem);
    put("plan-movements", el("p", { class: "bad" }, problem.message));
  }
}
function first() { cursor = ""; above = 0; return movements(); }

const frame = () => { own("plan-look").hidden = !status || !named(); };
const note = problem => { if (!problem.isRefused) failedAt = Date.now(); };
async function look() {
  failedAt = null;
  await readPlan();
}
async function readPlan() {
  const id = named(), turn = looks += 1;
  if (place.isOpen || !id) return;
  if (!/^[0-9a-f]{1,64}$/.test(id)) return clear(el("p", { class: "bad whole" }, `There is no such plan: the id of a plan has up to 64 characters of 0-9 a-f, and ${id} is none.`));
  try {
    const plan = await read(id);
    if (turn !== looks || place.isOpen) return;
    show(plan, timeNow());
  } catch (problem) {
    if (turn !== looks) return;
    note(problem);
    clear(el("p", { class: "bad" }, problem.message));
  }
}
document.addEventListener("status", event => {
  status = event.detail;
  frame();
  if (!status || !named()) { known = ""; looks += 1; return place.isOpen ? undefined : clear(); }
  // A plan is read whole: only where it, or what has become of it, is another one.
  const { plan, execution } = status.control;
  const now = JSON.stringify([named(), plan && [plan.plan_id, plan.created_ms, plan.expires_ms <= timeNow()],
    execution && [execution.execution_id, execution.event === "endorsed", execution.started_ms, execution.ended_ms]]);
  const isDue = now !== known || (failedAt !== null && Date.now() - failedAt > AGAIN_MS);
  if (isDue && !place.isOpen) { known = now; look(); }
  else if (shown) head(shown, timeNow());
});
window.addEventListener("hashchange", () => {
  place.reset();
  frame();
  if (!status || !named()) return;
  window.scrollTo(0, 0);
  look();
});
search.addEventListener("submit", event => { event.preventDefault(); if (shown) first(); });
search.addEventListener("change", () => { if (shown) first(); });
own("plan-first").addEventListener("click", first);
own("plan-next").addEventListener("click", event => { above += ROWS_MAX; cursor = event.currentTarget.value; movements(); });

const maker = actPlace(own("plan-make"));
document.addEventListener("status", event => maker.offer(event.detail && {
  id: "plan", about: "a new plan", verb: "make a plan", typed: "plan", path: "api/v1/plans", closed: () => {},
  ask: "This makes the plan that control would make now, of the newest windows. Nothing moves until somebody approves it.",
}));
window.addEventListener("hashchange", () => maker.reset());
