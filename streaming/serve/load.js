"use strict";
// Pages of one broker (#broker=3), topic (#topic=NAME) and partition (#partition=TOPIC/3): rates and size over time, the
// hottest partitions, the groups that read a topic, and what moved when and why. Uses `views`, `plots` and the page.
(() => {
  const POINTS_MAX = 240, ROWS_MAX = 1000, HOTTEST_SHOWN = 20, GROUPS_SHOWN = 50, MOVES_SHOWN = 25;
  const RATES = [["bytes in", "bytes_in_per_sec"], ["bytes out", "bytes_out_per_sec"]];
  const ORDERS = [["bytes_in", "bytes in"], ["bytes_out", "bytes out"], ["size", "size"], ["name", "number"]];

  async function history(where, path, keys, size) {
    const to = timeNow(), from = to - views.span(where).ms, step = Math.floor((to - from) / POINTS_MAX);
    const past = await views.read(path, { ...keys, from, to, step, limit: ROWS_MAX });
    const series = (name, member) => ({ name, points: past.items.map(row => [row.start_ms, row[member]]) });
    const time = views.span(where).text, shared = { from, to, stepMs: past.step_ms };
    return [plots.lines({ title: `Bytes per second, ${time}`, series: RATES.map(row => series(...row)), unit: rate, ...shared }),
      plots.lines({ title: `Size, ${time}`, series: [series("size", size)], unit: bytes, ...shared })];
  }
  const toBroker = id => link(`${id}`, "broker", `${id}`);

  // Partitions by what the address asks for, such as &order=size; `keys` are the broker that leads them, or the topic.
  async function hottest(where, title, keys, limit) {
    const order = (ORDERS.find(([key]) => key === where.order) || ORDERS[0])[0];
    const page = await views.read("partitions", { ...keys, order, limit });
    const rows = page.items.map(row => [views.partition(row), toBroker(row.broker),
      [rate(row.bytes_in_per_sec), "num"], [rate(row.bytes_out_per_sec), "num"], [bytes(row.size_bytes), "num"]]);
    const choices = ORDERS.map(([key, text]) => {
      const item = link(text, where.name, where.value, { span: views.span(where).key, order: key });
      if (key === order) item.setAttribute("aria-current", "true");
      return item;
    });
    return [el("h3", {}, title), el("p", { class: "choices" }, "by ", ...choices), rows.length ? views.scroll(title,
      table(["partition", "leader", ["bytes in", "num"], ["bytes out", "num"], ["size", "num"]], rows)) : none("None in the newest window."),
      page.next_cursor ? none("Further partitions are in /api/v1/partitions.") : null];
  }
  async function groups(topic) {
    const page = await views.read("groups", { topic, limit: GROUPS_SHOWN });
    const rows = page.items.map(row => [link(row.group, "group", row.group), el("span", { class: `badge ${VERDICTS[row.status] || "soft"}` }, row.status),
      [count(row.topics[0].lag_records), "num"], [row.why, "why"]]);
    return [el("h3", {}, "Consumer groups that read it, worst first"), rows.length ? views.scroll("Consumer groups",
      table(["group", "verdict of the group", ["lag here, records", "num"], "why"], rows)) : none("No consumer group reads it."),
      page.next_cursor ? none("Further groups are in /api/v1/groups.") : null];
  }

  const STATES = { made: "good", not_made: "bad", under_way: "warn", waiting: "warn", unknown: "soft" };
  function came(row) {
    const whole = `execution ${row.phase}: ${count(row.movements_done)} of ${count(row.movements_total)} made`;
    const when = row.made_ms === null ? "" : ` ${views.when(row.made_ms)}`;
    return el("span", { class: STATES[row.state], title: whole }, row.state === "unknown" ? whole : words(row.state) + when);
  }
  const brokers = ids => el("span", {}, ...ids.flatMap((id, i) => [i ? ", " : "", toBroker(id)]));
  const route = row => row.kind === "log_dir"
    ? [el("span", {}, toBroker(row.old_replicas[0]), ` ${row.old_log_dir}`), row.new_log_dir] : [brokers(row.old_replicas), brokers(row.new_replicas)];
  async function moves(where, keys) {
    const page = await views.read("movements", { ...keys, limit: MOVES_SHOWN, cursor: where.cursor });
    const rows = page.items.map(row => [views.when(row.started_ms ?? row.approved_ms), views.partition(row), ...route(row), [bytes(row.bytes_to_move), "num"], came(row),
      [el("span", {}, row.reason || "–", ...[row.cause, row.approval].filter(Boolean).map(text => el("div", { class: "soft" }, text))), "why"],
      row.ended_ms === null ? "–" : views.when(row.ended_ms), link(row.execution_id.slice(0, 12), "execution", row.execution_id), planLink(row.plan_id)]);
    return [el("h3", {}, "What moved, when and why"), rows.length ? views.scroll("Movements",
      table(["began", "partition", "replicas before", "after", ["to copy", "num"], "state", "why", "ended", "execution", "plan"], rows))
      : none(page.next_cursor ? "Nothing among the newest executions." : "No execution has moved anything of it."), views.pager(where, page.next_cursor)];
  }
  function apart(text) {
    const place = text.lastIndexOf("/");
    return { topic: text.slice(0, place), partition: text.slice(place + 1) };
  }
  const isPartition = text => /^[^/]+\/[0-9]+$/.test(text);
  const called = text => { const { topic, partition } = apart(text); return isPartition(text) ? `Partition ${topic}-${partition}` : `No partition: ${text}`; };
  const all = async parts => (await Promise.all(parts)).flat();

  async function partition(where) {
    if (!isPartition(where.value)) return [el("p", { class: "bad", role: "alert" }, "This address names no partition: it ends with #partition=TOPIC/NUMBER, such as #partition=orders/3.")];
    const keys = apart(where.value), now = await views.read("partitions", keys);
    const led = now.items.map(row => el("span", {}, " · led by broker ", toBroker(row.broker)));
    return [el("p", { class: "line" }, "Topic ", link(keys.topic, "topic", keys.topic), ...led),
      ...await all([history(where, "partitions", keys, "size_bytes"), moves(where, keys)])];
  }
  views.add("broker", { title: where => `Broker ${where.value}`, hasSpans: true, read: where => all([
    history(where, "brokers", { broker: where.value }, "log_dir_used_bytes"),
    hottest(where, "Hottest partitions that it leads", { broker: where.value }, HOTTEST_SHOWN), moves(where, { broker: where.value })]) });
  views.add("topic", { title: where => `Topic ${where.value}`, hasSpans: true, read: where => all([
    history(where, "topics", { topic: where.value }, "size_bytes"), groups(where.value),
    hottest(where, "Partitions, hottest first", { topic: where.value }, ROWS_MAX), moves(where, { topic: where.value })]) });
  views.add("partition", { title: where => called(where.value), hasSpans: true, read: partition });
})();
