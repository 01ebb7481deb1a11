// Plots as SVG: lines over time, and a time line of events. `plots` serves the scripts of pages.
import { el, none } from "./elements.js";

const COLOURS = ["var(--main)", "var(--warn)", "var(--good)", "var(--bad)", "var(--soft)", "var(--second)"];
const DAY_MS = 86400000, LEVELS = 4;
const room = () => Math.max(290, Math.min(1100, document.querySelector("main").clientWidth - 84));

function clock(ms, spanMs) {
  const at = new Date(ms), time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return spanMs <= DAY_MS ? time : spanMs <= 3 * DAY_MS ? `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`
    : at.toLocaleDateString([], { day: "numeric", month: "short" });
}
// The next round figure above, so that levels are read without a calculator.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 4, 5, 8, 10].map(step => step * power).find(step => step >= value) || 10 * power;
}
const label = (content, attributes) => el("text", { "font-size": 12, fill: "var(--soft)", ...attributes }, content);

// Points that are unknown, or a step apart from the one before, begin a new piece: no line is drawn over a gap.
function pieces(points, stepMs) {
  const found = [];
  let before = null;
  for (const [ms, value] of points) {
    if (value === null || value === undefined) { before = null; continue; }
    if (before === null || ms - before > 1.5 * stepMs) found.push([]);
    found[found.length - 1].push([ms, value]);
    before = ms;
  }
  return found;
}
function legend(series, unit) {
  return el("div", { class: "legend" }, ...series.map((one, i) => {
    const known = one.points.map(point => point[1]).filter(value => value !== null && value !== undefined);
    const newest = known.length ? unit(known[known.length - 1]) : "unknown";
    return el("span", {}, el("i", { style: `background:${COLOURS[i % COLOURS.length]}` }), `${one.name}: ${newest}`);
  }));
}
function axis(x, from, to, left, right, y) {
  const span = to - from, wide = right - left > 500;
  const marks = wide ? [0, .25, .5, .75, 1] : [0, 1];
  return marks.map(part => label(clock(from + part * span, span), {
    x: x(from + part * span), y, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
  }));
}

export const plots = {
  // `series`: [{ name, points: [[ms, value or null], ...] }]; `spans`: [{ from, to, name }] are shaded.
  lines({ title, series, unit, from, to, stepMs, spans = [] }) {
    const values = series.flatMap(one => one.points.map(point => point[1])).filter(value => value !== null && value !== undefined);
    if (!values.length) return el("div", {}, el("h3", {}, title), none("Nothing is known of this time."));
    const width = room(), height = width > 500 ? 190 : 170, left = 72, right = width - 8, upper = 10, lower = 26;
    const top = roundUp(Math.max(...values)), highest = Math.max(...values);
    const x = ms => left + (right - left) * (ms - from) / (to - from || 1);
    const y = value => upper + (height - upper - lower) * (top - value) / (top || 1);
    const drawn = [];
    for (const span of spans) {
      const begin = Math.max(x(span.from), left), end = Math.min(x(span.to), right);
      if (end < left || begin > right) continue;
      drawn.push(el("rect", { x: begin, y: upper, width: Math.max(end - begin, 3), height: height - upper - lower, fill: "var(--good)", opacity: .25 }, el("title", {}, span.name)));
    }
    for (let i = 0; i <= LEVELS; i += 1) {
      const value = top * i / LEVELS;
      drawn.push(el("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: "var(--line)" }),
        label(unit(value), { x: left - 6, y: y(value) + 4, "text-anchor": "end" }));
    }
    series.forEach((one, i) => {
      for (const piece of pieces(one.points, stepMs)) {
        const colour = COLOURS[i % COLOURS.length];
        if (piece.length === 1) drawn.push(el("circle", { cx: x(piece[0][0]), cy: y(piece[0][1]), r: 2.5, fill: colour }));
        else drawn.push(el("path", { d: piece.map(([ms, value], n) => `${n ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join(""), fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round" }));
      }
    });
    return el("div", {}, el("h3", {}, title),
      el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: at most ${unit(highest)}` },
        ...drawn, ...axis(x, from, to, left, right, height - 6)),
      legend(series, unit));
  },
  // `events`: [{ ms, name, kind }], where kind is good, warn, bad or soft.
  times({ title, events, from, to }) {
    const width = room(), left = 8, right = width - 8;
    const x = ms => left + (right - left) * (ms - from) / (to - from || 1);
    const marks = events.filter(one => one.ms >= from && one.ms <= to).map(one =>
      el("rect", { x: x(one.ms) - 2, y: 8, width: 4, height: 22, rx: 2, fill: `var(--${one.kind})` }, el("title", {}, one.name)));
    return el("svg", { viewBox: `0 0 ${width} 54`, role: "img", "aria-label": `${title}: ${events.length}` },
      el("line", { x1: left, x2: right, y1: 19, y2: 19, stroke: "var(--line)" }), ...marks, ...axis(x, from, to, left, right, 48));
  },
};
