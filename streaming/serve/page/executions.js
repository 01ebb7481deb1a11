// Pages of executions: all, the newest first (#executions), and one (#execution=ID): how far each wave, broker and movement
// is, what happened when, and what came of it beside what its plan promised.
import { bytes, count, counted, rate, share, span, words } from "./units.js";
import { el, link, none, planLink, table } from "./elements.js";
import { timeNow } from "./serve.js";
import { views } from "./views.js";

const MOVES_SHOWN = 100, STATES = { made: "good", under_way: "warn", waiting: "soft", not_made: "bad", unknown: "soft" };
const kind = row => row.ended_ms === null ? "warn" : ["refused", "aborted"].includes(row.phase) ? "bad" : "good";
const badge = row => el("span", { class: `badge ${kind(row)}` }, words(row.phase));
const made = row => `${count(row.movements_done)} of ${count(row.movements_total)}`;

// The rolling restart that is open: whose turn it is, and what the roll keeps to.
function roll(one) {
  if (!one) return [];
  const turn = one.broker === null ? "all brokers are restarted" : [link(`broker ${one.broker}`, "broker", `${one.broker}`), `: ${one.phase || "waits for its turn"}`];
  return [el("h3", {}, "Rolling restart"), el("p", {}, `${count(one.restarted.length)} of ${counted(one.brokers.length, "broker is", "brokers are")} restarted · `, ...[turn].flat()),
    el("p", { class: "soft" }, `margin ${one.margin}${one.accepts_single ? " · partitions without a second replica may be offline" : ""} · newest event `, views.when(one.event_ms), `: ${one.detail}`)];
}
async function all(where) {
  const [page, open] = await Promise.all([views.read("executions", { cursor: where.cursor }), where.cursor ? { roll: null } : views.read("roll")]);
  if (!page.items.length) return [...roll(open.roll), none("Nothing was carried out yet.")];
  const rows = page.items.map(row => [views.when(row.approved_ms), link(row.execution_id.slice(0, 12), "execution", row.execution_id), badge(row),
    [made(row), "num"], [bytes(row.bytes_moved), "num"], views.when(row.started_ms), views.when(row.ended_ms), planLink(row.plan_id), [row.detail || "–", "why"]]);
  return [...roll(open.roll), views.scroll("Executions", table(["approved", "execution", "state", ["movements made", "num"], ["copied", "num"], "began", "ended", "plan", "newest event"], rows)),
    views.pager(where, page.next_cursor)];
}
function skew(row) {
  const rows = views.skew(row, ["max_over_mean_before", "max_over_mean_predicted", "max_over_mean_measured"]);
  return rows.length ? [el("h3", {}, "Highest load per mean"), views.scroll("Highest load per mean",
    table(["resource", ["before", "num"], ["planned", "num"], ["measured", "num"]], rows))] : [];
}
// Movements that are made, and behind them those that copy now.
const bar = part => el("div", { class: "bar" }, el("i", { class: "second", style: `width:${share(part.made + part.under_way, part.movements)}` }),
  el("i", { class: "goodfill", style: `width:${share(part.made, part.movements)}` }));
const figures = part => [[bar(part), "wide"], [`${count(part.made)} of ${count(part.movements)}`, "num"], [count(part.under_way), "num less"],
  [`${bytes(part.bytes_made)} of ${bytes(part.bytes_to_move)}`, "num less"]];
function progress(title, head, rows, name, left) {
  if (!rows.length) return [];
  return [el("h3", {}, title), views.scroll(title, table([head, "", ["movements made", "num"], ["under way", "num less"], ["bytes of those made", "num less"]],
    rows.map(part => [name(part), ...figures(part)]))), left ? none(`${counted(left, "more is", "more are")} not shown.`) : null];
}
const route = move => move.kind === "log_dir" ? [`${move.old_log_dir} on broker ${move.old_replicas}`, move.new_log_dir] : [move.old_replicas.join(", "), move.new_replicas.join(", ")];
// Movements in the state that the address asks for, such as &state=not_made.
function movements(where, one, page) {
  const known = Object.keys(STATES).filter(name => one.states[name]), total = known.reduce((sum, name) => sum + one.states[name], 0);
  const choices = [["", `all ${count(total)}`], ...known.map(name => [name, `${words(name)} ${count(one.states[name])}`])].map(([name, text]) => {
    const item = link(text, where.name, where.value, name ? { state: name } : {});
    if (name === (where.state || "")) item.setAttribute("aria-current", "true");
    return item;
  });
  const rows = page.items.map(move => [views.partition(move), ...route(move), [bytes(move.bytes_to_move), "num"], el("span", { class: STATES[move.state] }, words(move.state)),
    move.made_ms === null ? "–" : views.when(move.made_ms), [move.reason || "–", "why"]]);
  return [el("h3", {}, "Movements"), total ? el("p", { class: "choices" }, ...choices) : null, rows.length ? views.scroll("Movements",
    table(["partition", "from", "to", ["to copy", "num"], "state", "seen made", "why"], rows)) : none(total ? "None is in this state." : "They have expired."),
    views.pager(where, page.next_cursor)];
}
async function one(where) {
  const path = `executions/${encodeURIComponent(where.value)}`;
  const [row, moved] = await Promise.all([views.read(path), views.read(`${path}/movements`, { state: where.state, cursor: where.cursor, limit: MOVES_SHOWN })]);
  if (views.isAt(where.name, where.value)) document.dispatchEvent(new CustomEvent("execution", { detail: row }));
  const took = row.started_ms === null ? "has not begun" : `${row.ended_ms === null ? "under way for" : "took"} ${span((row.ended_ms ?? timeNow()) - row.started_ms)}`;
  const facts = [`${made(row)} ${row.movements_total === 1 ? "movement" : "movements"} made`, `${bytes(row.bytes_moved)} of ${bytes(row.bytes_total)} copied`, took,
    row.throttle_bytes_per_sec && row.ended_ms === null ? `throttle ${rate(row.throttle_bytes_per_sec)} per broker` : null,
    row.is_abort_requested && row.ended_ms === null ? "asked to stop" : null];
  const events = row.events.map(event => [views.when(event.event_ms), words(event.event), [event.detail || "–", "why"], [made(event), "num"], [bytes(event.bytes_moved), "num"],
    [rate(event.throttle_bytes_per_sec), "num less"]]);
  return [el("p", { class: "line" }, badge(row), ` ${row.detail || ""}`), el("p", { class: "line soft" }, facts.filter(Boolean).join(" · ")),
    el("p", { class: "line" }, "Plan ", planLink(row.plan_id)), ...skew(row),
    ...progress("Waves", "wave", row.waves, wave => `${wave.wave + 1}`, row.waves_left_out),
    ...progress("Brokers that receive replicas", "broker", row.receivers, one => link(`${one.broker}`, "broker", `${one.broker}`), row.receivers_left_out),
    el("h3", {}, "Events, newest first"),
    views.scroll("Events", table(["when", "event", "what", ["movements made", "num"], ["copied", "num"], ["throttle", "num less"]], events)),
    ...movements(where, row, moved)];
}
views.add("executions", { title: () => "Executions, newest first", read: all });
views.add("execution", { title: where => `Execution ${where.value}`, read: one });
