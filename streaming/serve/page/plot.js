// Plots as SVG: lines over time, and a time line of events. A screen reader has their titles, and their colours are
// those of the page, light or dark. uPlot, with 50 kB, draws on a canvas that has neither: titles, colours and the time
// line would still be code of ours.
import { html, svg } from "./lit-html/lit-html.js";
import { none } from "./elements.js";
import { isKnown } from "./units.js";

const COLOURS = ["var(--main)", "var(--warn)", "var(--good)", "var(--bad)", "var(--soft)", "var(--second)"];
const DAY_MS = 86400000;
const LEVELS = 4;
const WIDTH_MIN = 290;
const WIDTH_MAX = 1100;
const room = () => Math.max(WIDTH_MIN, Math.min(WIDTH_MAX, document.querySelector("main").clientWidth - 84));

export const clock = ms => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
function timeText(ms, spanMs) {
  if (spanMs <= DAY_MS) return clock(ms);
  const day = new Date(ms).toLocaleDateString([], { day: "numeric", month: "short" });
  return spanMs <= 3 * DAY_MS ? `${day} ${clock(ms)}` : day;
}
// The next round figure above, so that levels are read without a calculator.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 4, 5, 8, 10].map(step => step * power).find(step => step >= value) || 10 * power;
}
export const label = (content, x, y, anchor = "start") =>
  svg`<text font-size="12" fill="var(--soft)" x=${x} y=${y} text-anchor=${anchor}>${content}</text>`;
export const level = (left, right, y, colour, dash = "") =>
  svg`<line x1=${left} x2=${right} y1=${y} y2=${y} stroke=${colour} stroke-dasharray=${dash}></line>`;
export function path(points, x, y, colour, width) {
  const at = points.map(([ms, value], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return svg`<path d=${at} fill="none" stroke=${colour} stroke-width=${width} stroke-linejoin="round"></path>`;
}
// A shaded time from `begin` to `end`.
export const shade = (begin, end, y, height, name) =>
  svg`<rect x=${begin} y=${y} width=${Math.max(end - begin, 3)} height=${height} fill="var(--good)" opacity=".3"
    ><title>${name}</title></rect>`;

// Points that are unknown, or a step apart from the one before, begin a new piece: no line is drawn over a gap.
function pieces(points, stepMs) {
  const found = [];
  let before = null;
  for (const [ms, value] of points) {
    if (!isKnown(value)) {
      before = null;
      continue;
    }
    if (before === null || ms - before > 1.5 * stepMs) found.push([]);
    found[found.length - 1].push([ms, value]);
    before = ms;
  }
  return found;
}
function legend(series, unit) {
  const entries = series.map((one, i) => {
    const known = one.points.map(point => point[1]).filter(isKnown);
    const newest = known.length ? unit(known[known.length - 1]) : "unknown";
    return html`<span><i style="background:${COLOURS[i % COLOURS.length]}"></i>${one.name}: ${newest}</span>`;
  });
  return html`<div class="legend">${entries}</div>`;
}
function axis(x, from, to, isWide, y) {
  const marks = isWide ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
  return marks.map(part => {
    const ms = from + part * (to - from);
    return label(timeText(ms, to - from), x(ms), y, part === 0 ? "start" : part === 1 ? "end" : "middle");
  });
}
const scale = (from, to, left, right) => ms => left + ((right - left) * (ms - from)) / (to - from || 1);

export const plots = {
  // `series`: [{ name, points: [[ms, value or null], ...] }].
  lines({ title, series, unit, from, to, stepMs }) {
    const values = series.flatMap(one => one.points.map(point => point[1])).filter(isKnown);
    if (!values.length) return html`<div><h3>${title}</h3>${none("Nothing is known of this time.")}</div>`;
    const width = room();
    const isWide = width > 580;
    const height = width > 500 ? 190 : 170;
    const [left, right, upper, lower] = [72, width - 8, 10, 26];
    const highest = Math.max(...values);
    const top = roundUp(highest);
    const x = scale(from, to, left, right);
    const y = value => upper + ((height - upper - lower) * (top - value)) / (top || 1);
    const levels = Array.from({ length: LEVELS + 1 }, (_, i) => (top * i) / LEVELS).map(value => [
      level(left, right, y(value), "var(--line)"),
      label(unit(value), left - 6, y(value) + 4, "end"),
    ]);
    const lines = series.flatMap((one, i) => {
      const colour = COLOURS[i % COLOURS.length];
      return pieces(one.points, stepMs).map(piece =>
        piece.length === 1
          ? svg`<circle cx=${x(piece[0][0])} cy=${y(piece[0][1])} r="2.5" fill=${colour}></circle>`
          : path(piece, x, y, colour, 2),
      );
    });
    return html`<div><h3>${title}</h3>
      <svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}: at most ${unit(highest)}">
        ${levels}${lines}${axis(x, from, to, isWide, height - 6)}
      </svg>${legend(series, unit)}</div>`;
  },
  // `events`: [{ ms, name, kind }], where kind is good, warn, bad or soft.
  times({ title, events, from, to }) {
    const width = room();
    const [left, right] = [8, width - 8];
    const x = scale(from, to, left, right);
    const marks = events
      .filter(one => one.ms >= from && one.ms <= to)
      .map(
        one => svg`<rect x=${x(one.ms) - 2} y="8" width="4" height="22" rx="2" fill="var(--${one.kind})"
          ><title>${one.name}</title></rect>`,
      );
    return html`<svg viewBox="0 0 ${width} 54" role="img" aria-label="${title}: ${events.length}">
      ${level(left, right, 19, "var(--line)")}${marks}${axis(x, from, to, right - left > 500, 48)}
    </svg>`;
  },
};
