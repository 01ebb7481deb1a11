"use strict";
// Pages of one broker (#broker=3), topic (#topic=NAME) and partition (#partition=TOPIC/3): rates and size over time.
// Uses `views`, `plots` and the page.
(() => {
  const POINTS_MAX = 240, ROWS_MAX = 1000;
  const RATES = [["bytes in", "bytes_in_per_sec"], ["bytes out", "bytes_out_per_sec"]];

  async function history(where, path, keys, size) {
    const to = Date.now(), from = to - views.span(where).ms, step = Math.floor((to - from) / POINTS_MAX);
    const past = await views.read(path, { ...keys, from, to, step, limit: ROWS_MAX });
    const series = (name, member) => ({ name, points: past.items.map(row => [row.start_ms, row[member]]) });
    const time = views.span(where).text, shared = { from, to, stepMs: past.step_ms };
    return [plots.lines({ title: `Bytes per second, ${time}`, series: RATES.map(row => series(...row)), unit: rate, ...shared }),
      plots.lines({ title: `Size, ${time}`, series: [series("size", size)], unit: bytes, ...shared })];
  }
  async function partitions(topic) {
    const page = await views.read("partitions", { topic, limit: ROWS_MAX });
    const rows = page.items.map(row => [link(`${row.topic}-${row.partition}`, "partition", `${row.topic}/${row.partition}`), link(`${row.broker}`, "broker", `${row.broker}`),
      [rate(row.bytes_in_per_sec), "num"], [rate(row.bytes_out_per_sec), "num"], [bytes(row.size_bytes), "num"]]);
    return [el("h3", {}, "Partitions"), views.scroll("Partitions",
      table(["partition", "leader", ["bytes in", "num"], ["bytes out", "num"], ["size", "num"]], rows)),
      page.next_cursor ? none("Further partitions are in /api/v1/partitions.") : null];
  }
  function apart(text) {
    const place = text.lastIndexOf("/");
    return { topic: text.slice(0, place), partition: text.slice(place + 1) };
  }
  const called = text => { const { topic, partition } = apart(text); return `${topic}-${partition}`; };

  views.add("broker", { title: where => `Broker ${where.value}`, hasSpans: true,
    read: where => history(where, "brokers", { broker: where.value }, "log_dir_used_bytes") });
  views.add("topic", { title: where => `Topic ${where.value}`, hasSpans: true,
    read: async where => [...await history(where, "topics", { topic: where.value }, "size_bytes"), ...await partitions(where.value)] });
  views.add("partition", { title: where => `Partition ${called(where.value)}`, hasSpans: true,
    read: async where => [el("p", { class: "line" }, "Topic ", link(apart(where.value).topic, "topic", apart(where.value).topic)),
      ...await history(where, "partitions", apart(where.value), "size_bytes")] });
})();
