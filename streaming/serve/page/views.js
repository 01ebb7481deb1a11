// Pages behind the address, such as #group=NAME: one of them stands in place of the overview. `views` serves their
// scripts.
import { html } from "./lit-html/lit-html.js";
import { anchor, hash, link, none, put } from "./elements.js";
import { resources } from "./resources.js";
import { answerOf, ask } from "./serve.js";

const AGAIN_MS = 15000;
const SPANS = [
  ["hour", "1 hour", 3600000],
  ["day", "1 day", 86400000],
  ["week", "7 days", 604800000],
  ["month", "30 days", 2592000000],
];
// What was refused so is refused again, until the address changes, or for the latter two who is signed in.
const WRONG = [400, 404];
const CLOSED = [401, 403];
const own = id => document.getElementById(id);
const known = new Map();
let shown = null;
let turn = 0;
let isReading = false;
let change = "";
let readAt = 0;
let refused = 0;
let session = null;

// "#group=a%2Fb&span=day" is { name: "group", value: "a/b", span: "day" }; null where it is of the overview.
function address() {
  const [first, ...others] = location.hash
    .slice(1)
    .split("&")
    .map(part => part.split("="));
  try {
    const plain = parts => decodeURIComponent(parts.slice(1).join("="));
    const found = { name: first[0], value: plain(first), text: location.hash };
    for (const part of others) found[part[0]] = plain(part);
    return known.has(found.name) ? found : null;
  } catch (problem) {
    return null;
  }
}
// What an address asks for besides its thing and the place in a list.
function asked(where) {
  const { name, value, text, cursor, ...others } = where;
  return others;
}
class Refused extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}
async function read(path, query) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null);
  const response = await ask(`api/v1/${path}?${new URLSearchParams(given)}`);
  const answer = await answerOf(response);
  if (response.status === 503) throw new Error(answer.detail);
  if (!response.ok) throw new Refused(answer.detail, response.status);
  return answer;
}

// What a person reads where a program reads of tokens.
function howToSignIn() {
  if (!session) return "This page needs a session. Sign in at the top of the page.";
  const password = session.by_password && "with name and password";
  const ways = [password, session.by_issuer && "by your organisation"].filter(Boolean);
  if (!ways.length) return `This page needs a session: ${session.detail}.`;
  return `This page needs a session. Sign in ${ways.join(" or ")} at the top of the page.`;
}
function refuse(problem) {
  refused = [...WRONG, ...CLOSED].includes(problem.status) ? problem.status : 0;
  say("");
  if (problem.status === 401 && session && session.signed_in) document.dispatchEvent(new CustomEvent("session-lost"));
  const text = problem.status === 401 ? howToSignIn() : problem.message;
  put("view-body", html`<p class="bad" role="alert">${text}</p>`);
}

function frame(where) {
  const isView = where !== null;
  const isPlan = location.hash.startsWith("#plan=");
  own("overview").hidden = isView || isPlan;
  own("view").hidden = !isView;
  const here = isView ? [`#${where.name}`, `#${where.name}s`] : [isPlan ? "#plans" : "#overview"];
  for (const item of document.querySelectorAll("nav a")) {
    if (here.includes(item.hash)) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
}
function say(text) {
  own("view-state").textContent = text;
  own("view-body").classList.toggle("old", Boolean(text));
}
function title(where) {
  const { name, value } = where;
  const page = known.get(name);
  const choice = ([key, text]) =>
    anchor(hash(name, value, { span: key }), text, { isCurrent: key === span(where).key });
  own("view-title").textContent = page.title(where);
  put("view-spans", page.hasSpans ? SPANS.map(choice) : null);
}
// Pages name resources as the status describes them.
const statusSeen = new Promise(resolve => {
  for (const name of ["status", "connection-lost"]) document.addEventListener(name, resolve, { once: true });
});
async function look() {
  const where = address();
  const mine = (turn += 1);
  if (!where) return;
  isReading = true;
  try {
    await statusSeen;
    const parts = await known.get(where.name).read(where);
    if (mine !== turn) return;
    readAt = Date.now();
    refused = 0;
    say("");
    put("view-body", ...parts);
  } catch (problem) {
    if (mine !== turn) return;
    if (problem instanceof Refused) {
      refuse(problem);
      return;
    }
    const of = readAt ? `: these figures are of ${new Date(readAt).toLocaleTimeString([], { hour12: false })}` : "";
    say(problem.message + of);
  } finally {
    if (mine === turn) isReading = false;
  }
}
function go() {
  const where = address();
  turn += 1;
  isReading = false;
  frame(where);
  if (!where) {
    shown = null;
    return;
  }
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

// A form of a page changes the address: its fields are what the address asks for, a time in ms.
own("view-body").addEventListener("submit", event => {
  event.preventDefault();
  const where = address();
  const more = asked(where);
  for (const field of event.target.querySelectorAll("input, select")) {
    const ms = field.type === "datetime-local" ? Date.parse(field.value) : null;
    more[field.name] = ms === null ? field.value.trim() : Number.isFinite(ms) ? ms : "";
  }
  location.hash = hash(where.name, where.value, more);
});
window.addEventListener("hashchange", go);
// Each page of its own has begun by then: what is left is the overview.
document.addEventListener("DOMContentLoaded", () => {
  if (!address()) frame(null);
});
const lookAgain = () => {
  if (address() && readAt && !refused) look();
};
window.addEventListener("resize", lookAgain);
document.addEventListener("connection-lost", lookAgain);
document.addEventListener("session", event => {
  session = event.detail;
  if (address() && !WRONG.includes(refused)) look();
});
document.addEventListener("status", event => {
  const s = event.detail;
  const { decision, execution } = s ? s.control : {};
  const times = s && [s.load.window_end_ms, s.groups.newest_event_ms, decision?.decided_ms, execution?.event_ms];
  const now = JSON.stringify(times);
  // A read that takes long is not begun anew: it would never end.
  if (!address() || isReading || refused || (now === change && Date.now() - readAt < AGAIN_MS)) return;
  change = now;
  look();
});
// As a field for a time has it: without a zone, in that of the browser.
function localTime(ms) {
  if (!Number.isFinite(ms)) return "";
  return new Date(ms - 60000 * new Date(ms).getTimezoneOffset()).toISOString().slice(0, 16);
}
function field(where, name, text, type) {
  const id = `field-${name}`;
  const value = where[name] || "";
  return type === "search"
    ? html`<label for=${id}>${text}</label><input id=${id} name=${name} type="search" value=${value} maxlength="249">`
    : html`<label for=${id}>${text}</label
        ><input id=${id} name=${name} type=${type} value=${value && localTime(Number(value))}>`;
}

export const views = {
  // `page`: `title(where)`, `read(where)` that promises its parts, `hasSpans` where it shows a history.
  add(name, page) {
    known.set(name, page);
    if (address()?.name === name) go();
  },
  read,
  span,
  // Whether this page stands there now.
  isAt(name, value) {
    const where = address();
    return where !== null && where.name === name && where.value === value;
  },
  // Fields by which a list is searched: [name, words, type]; they hold what the address asks for.
  form(where, ...fields) {
    const isAsked = fields.some(([name]) => name in where);
    return html`<form class="fields" method="post" role="search" aria-label="This list">
      ${fields.map(([name, text, type = "search"]) => field(where, name, text, type))}
      <button>Search</button>${isAsked ? link("Show all", where.name, where.value) : null}
    </form>`;
  },
  // Orders of a list of loads: the key of the API, and its words.
  orders: () => [...resources.rates().map(one => [one.name, one.words]), ["size", "size"]],
  // The key of the choice that the address asks for; else of the first.
  chosen: (key, choices) => (choices.find(([known]) => known === key) || choices[0])[0],
  // Links that ask for one order of a list, or one state of its rows.
  choices(where, name, choices, chosen) {
    const choice = ([key, text]) =>
      anchor(hash(where.name, where.value, { ...asked(where), [name]: key }), text, { isCurrent: key === chosen });
    return html`<p class="choices">${choices.map(choice)}</p>`;
  },
  // Older and newest rows of a list that comes in pages.
  pager(where, next) {
    const page = (text, more) => link(text, where.name, where.value, { ...asked(where), ...more });
    if (!where.cursor && !next) return null;
    return html`<p class="pager">${where.cursor ? page("First page", {}) : null}
      ${next ? page("Next page", { cursor: next }) : null}</p>`;
  },
};
