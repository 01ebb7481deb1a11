"use strict";
// Pages of executions: all, the newest first (#executions), and one (#execution=ID): what it did, when, and what came of
// it beside what its plan promised. Uses `views` and the page.
(() => {
  const kind = row => row.ended_ms === null ? "warn" : ["refused", "aborted"].includes(row.phase) ? "bad" : "good";
  const badge = row => el("span", { class: `badge ${kind(row)}` }, words(row.phase));
  const made = row => `${count(row.movements_done)} of ${count(row.movements_total)}`;

  async function all(where) {
    const page = await views.read("executions", { cursor: where.cursor });
    if (!page.items.length) return [none("Nothing was carried out yet.")];
    const rows = page.items.map(row => [views.when(row.approved_ms), link(row.execution_id.slice(0, 12), "execution", row.execution_id), badge(row),
      [made(row), "num"], [bytes(row.bytes_moved), "num"], views.when(row.started_ms), views.when(row.ended_ms), planLink(row.plan_id), [row.detail || "–", "why"]]);
    return [views.scroll("Executions", table(["approved", "execution", "state", ["movements made", "num"], ["copied", "num"], "began", "ended", "plan", "newest event"], rows)),
      views.pager(where, page.next_cursor)];
  }
  function skew(row) {
    const rows = views.skew(row, ["max_over_mean_before", "max_over_mean_predicted", "max_over_mean_measured"]);
    return rows.length ? [el("h3", {}, "Highest load per mean"), views.scroll("Highest load per mean",
      table(["resource", ["before", "num"], ["planned", "num"], ["measured", "num"]], rows))] : [];
  }
  async function one(where) {
    const row = await views.read(`executions/${encodeURIComponent(where.value)}`);
    const took = row.started_ms === null ? "has not begun" : `${row.ended_ms === null ? "under way for" : "took"} ${span((row.ended_ms ?? Date.now()) - row.started_ms)}`;
    const facts = [`${made(row)} movements made`, `${bytes(row.bytes_moved)} of ${bytes(row.bytes_total)} copied`, took,
      row.throttle_bytes_per_sec && row.ended_ms === null ? `throttle ${rate(row.throttle_bytes_per_sec)} per broker` : null,
      row.is_abort_requested && row.ended_ms === null ? "asked to stop" : null];
    const events = row.events.map(event => [views.when(event.event_ms), words(event.event), [event.detail || "–", "why"], [made(event), "num"], [bytes(event.bytes_moved), "num"],
      [rate(event.throttle_bytes_per_sec), "num less"]]);
    return [el("p", { class: "line" }, badge(row), ` ${row.detail || ""}`), el("p", { class: "line soft" }, facts.filter(Boolean).join(" · ")),
      el("p", { class: "line" }, "Plan ", planLink(row.plan_id), " has its movements."), ...skew(row), el("h3", {}, "Events, newest first"),
      views.scroll("Events", table(["when", "event", "what", ["movements made", "num"], ["copied", "num"], ["throttle", "num less"]], events))];
  }
  views.add("executions", { title: () => "Executions, newest first", read: all });
  views.add("execution", { title: where => `Execution ${where.value}`, read: one });
})();
