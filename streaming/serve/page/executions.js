// Pages of executions: all, the newest first (#executions), and one (#execution=ID): how far each wave, broker and
// movement is, what happened when, and what came of it beside what its plan promised.
import { html } from "./lit-html/lit-html.js";
import {
  badge,
  bar,
  brokerLink,
  fill,
  link,
  none,
  partitionLink,
  planLink,
  scroll,
  section,
  table,
} from "./elements.js";
import { resources } from "./resources.js";
import { timeNow } from "./serve.js";
import { bytes, count, counted, rate, span, when, words } from "./units.js";
import { views } from "./views.js";

const MOVES_SHOWN = 100;
const STATES = { made: "good", under_way: "warn", waiting: "soft", not_made: "bad", unknown: "soft" };
const MEASURED = [
  ["before", "max_over_mean_before"],
  ["planned", "max_over_mean_predicted"],
  ["measured", "max_over_mean_measured"],
];
const made = row => `${count(row.movements_done)} of ${count(row.movements_total)}`;
function state(row) {
  const kind = row.ended_ms === null ? "warn" : ["refused", "aborted"].includes(row.phase) ? "bad" : "good";
  return badge(kind, words(row.phase));
}

// The rolling restart that is open: whose turn it is, and what the roll keeps to.
function roll(one) {
  if (!one) return null;
  const brokers = counted(one.brokers.length, "broker is", "brokers are");
  const turn =
    one.broker === null
      ? "all brokers are restarted"
      : [link(`broker ${one.broker}`, "broker", `${one.broker}`), `: ${one.phase || "waits for its turn"}`];
  const single = one.accepts_single ? " · partitions without a second replica may be offline" : "";
  return html`<h3>Rolling restart</h3><p>${count(one.restarted.length)} of ${brokers} restarted · ${turn}</p>
    <p class="soft">margin ${one.margin}${single} · newest event ${when(one.event_ms)}: ${one.detail}</p>`;
}
const COLUMNS = [
  ["approved", row => when(row.approved_ms)],
  ["execution", row => link(row.execution_id.slice(0, 12), "execution", row.execution_id)],
  ["state", state],
  ["movements made", made, "num"],
  ["copied", row => bytes(row.bytes_moved), "num"],
  ["began", row => when(row.started_ms)],
  ["ended", row => when(row.ended_ms)],
  ["plan", row => planLink(row.plan_id)],
  ["newest event", row => row.detail || "–", "why"],
];
async function all(where) {
  const [page, open] = await Promise.all([
    views.read("executions", { cursor: where.cursor }),
    where.cursor ? { roll: null } : views.read("roll"),
  ]);
  if (!page.items.length) return [roll(open.roll), none("Nothing was carried out yet.")];
  return [roll(open.roll), scroll("Executions", table(page.items, COLUMNS)), views.pager(where, page.next_cursor)];
}

function skew(row) {
  const title = "Highest load per mean";
  const found = resources.skewTable("resource", row, MEASURED);
  return found && html`<h3>${title}</h3>${scroll(title, found)}`;
}
function progress(title, head, parts, name, left) {
  if (!parts.length) return null;
  // Movements that are made, and behind them those that copy now.
  const done = part =>
    bar(fill("second", part.made + part.under_way, part.movements), fill("goodfill", part.made, part.movements));
  const columns = [
    [head, name],
    ["", done, "wide"],
    ["movements made", part => `${count(part.made)} of ${count(part.movements)}`, "num"],
    ["under way", part => count(part.under_way), "num less"],
    ["bytes of those made", part => `${bytes(part.bytes_made)} of ${bytes(part.bytes_to_move)}`, "num less"],
  ];
  return [section(title, parts, columns), left ? none(`${counted(left, "more is", "more are")} not shown.`) : null];
}
// Where a movement begins and ends: brokers, or two log dirs of one broker.
export const routeFrom = move =>
  move.kind === "log_dir" ? `${move.old_log_dir} on broker ${move.old_replicas}` : move.old_replicas.join(", ");
export const routeTo = move => (move.kind === "log_dir" ? move.new_log_dir : move.new_replicas.join(", "));
// Movements in the state that the address asks for, such as &state=not_made.
function movements(where, states, page) {
  const known = Object.keys(STATES).filter(name => states[name]);
  const total = known.reduce((sum, name) => sum + states[name], 0);
  const choices = [["", `all ${count(total)}`], ...known.map(name => [name, `${words(name)} ${count(states[name])}`])];
  const columns = [
    ["partition", partitionLink],
    ["from", routeFrom],
    ["to", routeTo],
    ["to copy", move => bytes(move.bytes_to_move), "num"],
    ["state", move => html`<span class=${STATES[move.state]}>${words(move.state)}</span>`],
    ["seen made", move => (move.made_ms === null ? "–" : when(move.made_ms))],
    ["why", move => move.reason || "–", "why"],
  ];
  const empty = total ? "None is in this state." : "They have expired.";
  return [
    html`<h3>Movements</h3>`,
    total ? views.choices(where, "state", choices, where.state || "") : null,
    page.items.length ? scroll("Movements", table(page.items, columns)) : none(empty),
    views.pager(where, page.next_cursor),
  ];
}
function facts(row) {
  const isOpen = row.ended_ms === null;
  const lasted = span((row.ended_ms ?? timeNow()) - row.started_ms);
  const facts = [
    `${made(row)} ${row.movements_total === 1 ? "movement" : "movements"} made`,
    `${bytes(row.bytes_moved)} of ${bytes(row.bytes_total)} copied`,
    row.started_ms === null ? "has not begun" : `${isOpen ? "under way for" : "took"} ${lasted}`,
    row.throttle_bytes_per_sec && isOpen ? `throttle ${rate(row.throttle_bytes_per_sec)} per broker` : null,
    row.is_abort_requested && isOpen ? "asked to stop" : null,
  ];
  return facts.filter(Boolean).join(" · ");
}
const EVENTS = [
  ["when", event => when(event.event_ms)],
  ["event", event => words(event.event)],
  ["what", event => event.detail || "–", "why"],
  ["movements made", made, "num"],
  ["copied", event => bytes(event.bytes_moved), "num"],
  ["throttle", event => rate(event.throttle_bytes_per_sec), "num less"],
];
async function one(where) {
  const path = `executions/${encodeURIComponent(where.value)}`;
  const [row, moved] = await Promise.all([
    views.read(path),
    views.read(`${path}/movements`, { state: where.state, cursor: where.cursor, limit: MOVES_SHOWN }),
  ]);
  if (views.isAt(where.name, where.value)) document.dispatchEvent(new CustomEvent("execution", { detail: row }));
  const receiver = ({ broker }) => brokerLink(broker);
  return [
    html`<p class="line">${state(row)} ${row.detail || ""}</p>
      <p class="line soft">${facts(row)}</p>
      <p class="line">Plan ${planLink(row.plan_id)}</p>`,
    skew(row),
    progress("Waves", "wave", row.waves, ({ wave }) => wave + 1, row.waves_left_out),
    progress("Brokers that receive replicas", "broker", row.receivers, receiver, row.receivers_left_out),
    section("Events, newest first", row.events, EVENTS),
    movements(where, row.states, moved),
  ];
}
views.add("executions", { title: () => "Executions, newest first", read: all });
views.add("execution", { title: where => `Execution ${where.value}`, read: one });
