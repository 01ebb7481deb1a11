// Elements of the page: templates that fill a place, tables, bars and links. With lit-html names become text, never
// markup, and only what differs is changed: who reads, marks, clicks or tabs while figures come is not disturbed.
import { html, nothing, render } from "./lit-html/lit-html.js";
import { keyed } from "./lit-html/directives/keyed.js";
import { share } from "./units.js";

export const VERDICTS = { ok: "good", unknown: "soft", warn: "warn", stop: "bad", stall: "bad", rewind: "bad" };
const NAME_LONG = 40;

// Fills a place. A link that had the focus has it again where it stands elsewhere now.
export function put(id, ...children) {
  const place = document.getElementById(id);
  const focused = document.activeElement;
  const href = place.contains(focused) ? focused.getAttribute("href") : null;
  render(children, place);
  if (!href || place.contains(document.activeElement)) return;
  const again = [...place.querySelectorAll("a")].find(item => item.getAttribute("href") === href);
  again?.focus({ preventScroll: true });
}

export const none = text => html`<span class="soft">${text}</span>`;
export const badge = (kind, text) => html`<span class="badge ${kind}">${text}</span>`;
export const verdictBadge = status => badge(VERDICTS[status] || "soft", status);
// A part of a bar, as long as `value` is of `whole`.
export const fill = (kind, value, whole) => html`<i class=${kind} style="width:${share(value, whole)}"></i>`;
export const bar = (...parts) => html`<div class="bar">${parts}</div>`;

// A column is its head, what a row has in it, and its kind, such as "num" or "less" (not on a narrow screen).
export function table(rows, columns) {
  // On a narrow screen a row that has a reason or is wide is a card, and each of its figures has its head beside it.
  const hasReason = columns.some(([, , kind]) => kind === "why");
  const cards = hasReason ? "cards" : columns.length > 4 ? "cards pairs" : nothing;
  const heads = columns.map(([head, , kind]) => html`<th class=${kind || nothing}>${head}</th>`);
  const cells = (row, i) =>
    columns.map(
      ([head, cell, kind]) => html`<td class=${kind || nothing} data-head=${head || nothing}>${cell(row, i)}</td>`,
    );
  return html`<table class=${cards}>
    <thead><tr>${heads}</tr></thead>
    <tbody>${rows.map((row, i) => html`<tr>${cells(row, i)}</tr>`)}</tbody>
  </table>`;
}
// A wide table, which moves sideways by itself and can be reached by the keyboard.
export const scroll = (name, content) =>
  html`<div class="scroll" role="region" aria-label=${name} tabindex="0">${content}</div>`;
// A part of a page: its rows, or what stands there where there are none.
export const section = (title, rows, columns, empty) =>
  html`<h3>${title}</h3>${rows.length ? scroll(title, table(rows, columns)) : none(empty)}`;

// The address of a page of this thing: names may hold any character. What is empty is left out.
export function hash(name, value, more) {
  const written = value === undefined || value === "" ? "" : `=${encodeURIComponent(value)}`;
  const others = Object.entries(more || {}).filter(([, text]) => text !== "");
  return `#${name}${written}${others.map(([key, text]) => `&${key}=${encodeURIComponent(text)}`).join("")}`;
}
// A link that leads elsewhere is another element: a click that has begun must not end on it.
export const anchor = (href, content, { kind, title, isCurrent } = {}) =>
  keyed(
    href,
    html`<a href=${href} class=${kind || nothing} title=${title || nothing}
      aria-current=${isCurrent ? "true" : nothing}>${content}</a>`,
  );
// A long name takes several lines: the figures beside it, such as a verdict, must not leave the screen.
export const link = (text, ...where) =>
  anchor(hash(...where), text === "" ? '""' : text, { kind: text.length > NAME_LONG ? "long" : "" });
export const planLink = id => anchor(`#plan=${id}`, id.slice(0, 12), { kind: "mono" });
export const brokerLink = id => link(`${id}`, "broker", `${id}`);
export const brokerLinks = ids => html`<span>${ids.map((id, i) => [i ? ", " : "", brokerLink(id)])}</span>`;
export const partitionLink = row => link(`${row.topic}-${row.partition}`, "partition", `${row.topic}/${row.partition}`);
