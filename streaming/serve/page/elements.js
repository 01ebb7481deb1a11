// Elements of the page: made of text alone, patched in place, tables and links.

export const VERDICTS = { ok: "good", unknown: "soft", warn: "warn", stop: "bad", stall: "bad", rewind: "bad" };
const NAME_LONG = 40;

// Names of groups and topics come from outside: they only ever become text, never markup.
export function el(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "rect", "text", "circle", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
// Changes what is there only where it differs: who reads, marks, clicks or tabs while figures come is not disturbed.
export function patch(place, fresh) {
  const old = [...place.childNodes], address = node => node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("href") : null;
  fresh.forEach((node, i) => {
    const there = old[i];
    if (!there) place.append(node);
    // A link that leads elsewhere is another one: a click that has begun must not end on it.
    else if (there.nodeName !== node.nodeName || address(there) !== address(node)) there.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) { if (there.data !== node.data) there.data = node.data; }
    else {
      for (const { name } of [...there.attributes]) if (!node.hasAttribute(name)) there.removeAttribute(name);
      for (const { name, value } of node.attributes) if (there.getAttribute(name) !== value) there.setAttribute(name, value);
      patch(there, [...node.childNodes]);
    }
  });
  for (const rest of old.slice(fresh.length)) rest.remove();
}
// A link that had the focus has it again where it stands elsewhere now.
export function put(id, ...children) {
  const place = document.getElementById(id), focused = document.activeElement;
  const href = place.contains(focused) ? focused.getAttribute("href") : null;
  patch(place, children.filter(Boolean).map(child => child instanceof Node ? child : document.createTextNode(child)));
  if (href && !place.contains(document.activeElement)) [...place.querySelectorAll("a")].find(item => item.getAttribute("href") === href)?.focus({ preventScroll: true });
}
export const none = text => el("span", { class: "soft" }, text);
export function table(heads, rows) {
  const parts = cell => Array.isArray(cell) ? cell : [cell, ""];
  // On a narrow screen a row that has a reason or is wide is a card, and each of its figures has its head beside it.
  const hasReason = rows.some(row => row.some(cell => parts(cell)[1] === "why"));
  const kind = hasReason ? { class: "cards" } : heads.length > 4 ? { class: "cards pairs" } : {};
  const cells = (row, tag) => row.map((cell, i) => {
    const [content, kind] = parts(cell), head = tag === "td" ? parts(heads[i])[0] : "";
    return el(tag, { ...kind && { class: kind }, ...head && { "data-head": head } }, content);
  });
  return el("table", kind, el("thead", {}, el("tr", {}, ...cells(heads, "th"))), el("tbody", {}, ...rows.map(row => el("tr", {}, ...cells(row, "td")))));
}

// The address of a page of this thing: names may hold any character.
export function hash(name, value, more) {
  const written = value === undefined || value === "" ? "" : `=${encodeURIComponent(value)}`;
  return `#${name}${written}${Object.entries(more || {}).map(([key, text]) => `&${key}=${encodeURIComponent(text)}`).join("")}`;
}
// A long name takes several lines: the figures beside it, such as a verdict, must not leave the screen.
export const link = (text, ...where) => el("a", { href: hash(...where), ...text.length > NAME_LONG && { class: "long" } }, text === "" ? '""' : text);
export const planLink = id => el("a", { class: "mono", href: `#plan=${id}` }, id.slice(0, 12));

