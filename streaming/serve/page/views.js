// Pages behind the address, such as #group=NAME: one of them stands in place of the overview. `views` serves their scripts.
import { ratio, when } from "./units.js";
import { el, hash, link, none, put } from "./elements.js";
import { answerOf, ask } from "./serve.js";
import { resources } from "./resources.js";

const AGAIN_MS = 15000, SPANS = [["hour", "1 hour", 3600000], ["day", "1 day", 86400000], ["week", "7 days", 604800000], ["month", "30 days", 2592000000]];
const own = id => document.getElementById(id);
const known = new Map();
// What was refused so is refused again, until the address changes, or for the latter two who is signed in.
const WRONG = [400, 404], CLOSED = [401, 403];
let shown = null, turn = 0, isReading = false, change = "", readAt = 0, refused = 0, session = null;

// "#group=a%2Fb&span=day" is { name: "group", value: "a/b", span: "day" }; null where it is of the overview.
function address() {
  const [first, ...others] = location.hash.slice(1).split("&").map(part => part.split("="));
  try {
    const plain = parts => decodeURIComponent(parts.slice(1).join("="));
    const found = { name: first[0], value: plain(first), text: location.hash };
    for (const part of others) found[part[0]] = plain(part);
    return known.has(found.name) ? found : null;
  } catch (problem) { return null; }
}
class Refused extends Error {
  constructor(text, status) { super(text); this.status = status; }
}
async function read(path, query) {
  const asked = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null);
  const response = await ask(`api/v1/${path}?${new URLSearchParams(asked)}`), answer = await answerOf(response);
  if (response.status === 503) throw new Error(answer.detail);
  if (!response.ok) throw new Refused(answer.detail, response.status);
  return answer;
}

// What a person reads where a program reads of tokens.
function howToSignIn() {
  const ways = session ? [session.by_password && "with name and password", session.by_issuer && "by your organisation"].filter(Boolean) : [];
  if (session && !ways.length) return `This page needs a session: ${session.detail}.`;
  return ["This page needs a session. Sign in", ways.join(" or "), "at the top of the page."].filter(Boolean).join(" ");
}
function refuse(problem) {
  refused = [...WRONG, ...CLOSED].includes(problem.status) ? problem.status : 0;
  say("");
  if (problem.status === 401 && session && session.signed_in) document.dispatchEvent(new CustomEvent("session-lost"));
  put("view-body", el("p", { class: "bad", role: "alert" }, problem.status === 401 ? howToSignIn() : problem.message));
}

function frame(where) {
  const isView = where !== null;
  const isPlan = location.hash.startsWith("#plan=");
  own("overview").hidden = isView || isPlan;
  own("view").hidden = !isView;
  for (const item of document.querySelectorAll("nav a")) {
    const isHere = isView ? [where.name, `${where.name}s`].includes(item.hash.slice(1)) : item.hash === (isPlan ? "#plans" : "#overview");
    if (isHere) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
}
const say = text => { own("view-state").textContent = text; own("view-body").classList.toggle("old", Boolean(text)); };
function title(where) {
  own("view-title").textContent = known.get(where.name).title(where);
  put("view-spans", ...(known.get(where.name).hasSpans ? SPANS.map(([key, text]) => {
    const item = link(text, where.name, where.value, { span: key });
    if (key === span(where).key) item.setAttribute("aria-current", "true");
    return item;
  }) : []));
}
// Pages name resources as the status describes them.
const statusSeen = new Promise(resolve => {
  for (const name of ["status", "connection-lost"]) document.addEventListener(name, resolve, { once: true });
});
async function look() {
  const where = address(), mine = turn += 1;
  if (!where) return;
  isReading = true;
  try {
    await statusSeen;
    const nodes = await known.get(where.name).read(where);
    if (mine !== turn) return;
    readAt = Date.now();
    refused = 0;
    say("");
    put("view-body", ...nodes);
  } catch (problem) {
    if (mine !== turn) return;
    if (problem instanceof Refused) { refuse(problem); return; }
    say(readAt ? `${problem.message}: these figures are of ${new Date(readAt).toLocaleTimeString([], { hour12: false })}` : problem.message);
  } finally { if (mine === turn) isReading = false; }
}
function go() {
  const where = address();
  turn += 1;
  isReading = false;
  frame(where);
  if (!where) { shown = null; return; }
  if (shown !== where.text) {
    shown = where.text;
    readAt = refused = 0;
    say("");
    title(where);
    put("view-body", none("reading …"));
    own("view-title").focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  look();
}
function span(where) {
  const [key, text, ms] = SPANS.find(one => one[0] === where.span) || SPANS[0];
  return { key, text, ms };
}

// A form of a page changes the address: its fields are what the address asks for, a time in ms. The empty ones are left out.
own("view-body").addEventListener("submit", event => {
  event.preventDefault();
  const { name, value, text, cursor, ...kept } = address(), asked = { ...kept };
  for (const field of event.target.querySelectorAll("input, select")) {
    const ms = field.type === "datetime-local" ? Date.parse(field.value) : null;
    asked[field.name] = ms === null ? field.value.trim() : Number.isFinite(ms) ? ms : "";
  }
  location.hash = hash(name, value, Object.fromEntries(Object.entries(asked).filter(([, entry]) => entry !== "")));
});
window.addEventListener("hashchange", go);
// Each page of its own has begun by then: what is left is the overview.
document.addEventListener("DOMContentLoaded", () => { if (!address()) frame(null); });
window.addEventListener("resize", () => { if (address() && readAt && !refused) look(); });
document.addEventListener("session", event => { session = event.detail; if (address() && !WRONG.includes(refused)) look(); });
document.addEventListener("connection-lost", () => { if (address() && readAt && !refused) look(); });
document.addEventListener("status", event => {
  const s = event.detail, { decision, execution } = s ? s.control : {};
  const now = JSON.stringify(s && [s.load.window_end_ms, s.groups.newest_event_ms, decision && decision.decided_ms, execution && execution.event_ms]);
  // A read that takes long is not begun anew: it would never end.
  if (!address() || isReading || refused || (now === change && Date.now() - readAt < AGAIN_MS)) return;
  change = now;
  look();
});
// As a field for a time has it: without a zone, in that of the browser.
const localTime = ms => Number.isFinite(ms) ? new Date(ms - 60000 * new Date(ms).getTimezoneOffset()).toISOString().slice(0, 16) : "";

export const views = {
  // `page`: `title(where)`, `read(where)` that promises nodes, `hasSpans` where it shows a history.
  add(name, page) { known.set(name, page); if (address()?.name === name) go(); },
  read, span,
  // Whether this page stands there now.
  isAt: (name, value) => { const where = address(); return where !== null && where.name === name && where.value === value; },
  // A wide table, which moves sideways by itself and can be reached by the keyboard.
  scroll: (name, ...children) => el("div", { class: "scroll", role: "region", "aria-label": name, tabindex: "0" }, ...children),
  partition: row => link(`${row.topic}-${row.partition}`, "partition", `${row.topic}/${row.partition}`),
  // Rows of a table: the highest load per mean of each resource that was known, by the ends of the members' names.
  skew(row, figures) {
    const [before] = figures, names = Object.keys(row).filter(key => key.endsWith(`_${before}`) && row[key] !== null).map(key => key.slice(0, -before.length - 1));
    return names.map(name => [resources.words(name), ...figures.map(figure => [ratio(row[`${name}_${figure}`]), "num"])]);
  },
  // Fields by which a list is searched: [name, words, type]; they hold what the address asks for.
  form: (where, ...fields) => el("form", { class: "fields", method: "post", role: "search", "aria-label": "This list" }, ...fields.flatMap(([name, text, type = "search"]) => {
    const id = `field-${name}`, asked = where[name] || "", value = type === "datetime-local" && asked ? localTime(Number(asked)) : asked;
    return [el("label", { for: id }, text), el("input", { id, name, type, value, ...type === "search" && { maxlength: 249 } })];
  }), el("button", {}, "Search"), Object.keys(where).some(key => fields.some(([name]) => name === key)) ? link("Show all", where.name, where.value) : null),
  // Orders of a list of loads: the key of the API, and its words.
  orders: () => [...resources.rates().map(one => [one.name, one.words]), ["size", "size"]],
  // Links that ask for one order of a list, or one state of its rows.
  choices: (where, name, choices, chosen) => el("p", { class: "choices" }, ...choices.map(([key, text]) => {
    const { name: page, value, text: _, cursor, ...kept } = where, item = link(text, page, value, { ...kept, [name]: key });
    if (key === chosen) item.setAttribute("aria-current", "true");
    return item;
  })),
  // Older and newest rows of a list that comes in pages.
  pager(where, next) {
    const { name, value, text, cursor, ...kept } = where, more = next ? link("Next page", name, value, { ...kept, cursor: next }) : null;
    return where.cursor || more ? el("p", { class: "pager" }, where.cursor ? link("First page", where.name, where.value, kept) : null, more) : null;
  },
  when,
};
