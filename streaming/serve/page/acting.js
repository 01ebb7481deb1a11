// Acts of whoever is signed in: a button, a confirmation that is typed, the request, and its answer in words.
import { capital, zone } from "./units.js";
import { el, patch } from "./elements.js";
import { answerOf, ask } from "./serve.js";

const ROLES = ["operator", "admin"], TRY_AGAIN = [408, 429, 503], ACT_MAX_MS = 90000;
let session = null, places = 0;
document.addEventListener("session", event => { session = event.detail; });

const may = () => Boolean(session && session.csrf_token && ROLES.includes(session.role));
function whyNot(verbs) {
  if (!session) return "";
  const text = verbs.join(" or ");
  if (session.signed_in && !session.role) return `You have no role on this cluster: to ${text}, an operator or admin of it signs in.`;
  if (session.signed_in) return `Role ${session.role} looks and does not act: to ${text}, an operator or admin signs in.`;
  return session.by_password || session.by_issuer ? `To ${text}, sign in as an operator or admin.` : session.detail;
}
// randomUUID is missing on pages without TLS.
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
const plain = text => text.trim().replace(/\s+/g, " ");

// What came of it; `isOpen` where the same request may be sent again, with its key: it acts once.
async function send(path, key, body) {
  try {
    const response = await ask(path, {
      method: "POST", cache: "no-store", signal: AbortSignal.timeout(ACT_MAX_MS),
      headers: { "X-CSRF-Token": session.csrf_token, "Idempotency-Key": key, ...body && { "Content-Type": "application/json" } },
      body: body && JSON.stringify(body),
    });
    const answer = await answerOf(response);
    if (response.status === 401) document.dispatchEvent(new CustomEvent("session-lost"));
    return { isDone: response.ok, isOpen: TRY_AGAIN.includes(response.status), text: answer.detail, planId: answer.plan_id };
  } catch (problem) {
    return { isDone: false, isOpen: true, text: "no answer came; send it again: it acts once" };
  }
}

// `offer` takes acts, or null for none: of each its `id`, `about` (what it acts on), `verb`, `ask` (what it does), `typed` (what to
// type), `path`, `flag` where a member of the body may be true (its `name` and `text`), `time` where one may be a time (the same), and `closed`, which is called when the person has decided: meanwhile nothing else is offered.
// An answer stays until the next form is opened, or until `forget`: it may come when something else is offered already.
export const actPlace = place => {
  const name = `act-${places += 1}`, box = el("div", {}), answer = el("p", { class: "line", role: "status", hidden: "" });
  let acts = [], key = "", isOpen = false, answered = null;
  place.replaceChildren(box, answer);

  function say(kind, text, planId) {
    answer.className = `line ${kind}`;
    answer.replaceChildren(text, ...planId ? [" ", el("a", { href: `#plan=${planId}` }, "Look at the plan")] : []);
    answer.hidden = !text;
  }
  function forget() {
    answered = null;
    say("", "");
  }
  function close() {
    isOpen = false;
    if (!acts.length) return patch(box, []);
    if (!may()) return patch(box, [el("p", { class: "line soft" }, whyNot(acts.map(act => act.verb)))]);
    const buttons = acts.map((act, place) => {
      const button = el("button", { type: "button" }, `${capital(act.verb)}…`);
      button.addEventListener("click", () => open(acts[place]));
      return button;
    });
    // Buttons that are there already stay: the first click after a while also asks for the session, and must not be lost.
    patch(box, [el("p", { class: "fields" }, ...buttons)]);
  }
  function open(chosen) {
    isOpen = true;
    key = newKey();
    forget();
    const input = el("input", { id: name, autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: "40", "aria-describedby": `${name}-ask` });
    const send = el("button", { disabled: "", class: "acts" }, capital(chosen.verb));
    const cancel = el("button", { type: "button" }, "Cancel");
    const flag = chosen.flag && el("input", { type: "checkbox", id: `${name}-flag` });
    // The browser has a person fill in all of a time or nothing; what is no time for the act, the answer explains.
    const time = chosen.time && el("input", { type: "datetime-local", id: `${name}-time` });
    const form = el("form", { method: "post", class: "act" }, el("p", { id: `${name}-ask` }, chosen.ask),
      time && el("p", {}, el("label", { for: `${name}-time` }, `${chosen.time.text} (${zone()}; empty for at once) `), time),
      flag && el("p", {}, flag, el("label", { for: `${name}-flag` }, ` ${chosen.flag.text}`)),
      el("label", { for: name }, "Type ", el("b", { class: "mono" }, chosen.typed), ` to ${chosen.verb}`), input, send, cancel);
    input.addEventListener("input", () => { send.disabled = plain(input.value) !== chosen.typed; });
    const leave = () => { close(); box.querySelectorAll("button")[acts.indexOf(chosen)]?.focus(); chosen.closed(); };
    cancel.addEventListener("click", leave);
    form.addEventListener("keydown", event => { if (event.key === "Escape") leave(); });
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (plain(input.value) !== chosen.typed) return;
      const body = { ...flag && flag.checked && { [chosen.flag.name]: true }, ...time && time.value && { [chosen.time.name]: new Date(time.value).getTime() } };
      carryOut(chosen, send, Object.keys(body).length ? body : undefined);
    });
    box.replaceChildren(form);
    input.focus();
  }
  async function carryOut(chosen, button, body) {
    button.disabled = true;
    say("soft", "sent …");
    const came = await send(chosen.path, key, body);
    answered = { id: chosen.id, about: chosen.about, planId: came.isDone && !chosen.hasPlan ? came.planId : null, kind: came.isDone ? "good" : "bad",
      text: `${came.isDone ? "Done" : came.isOpen ? "Not known yet" : "Refused"}: ${came.text}` };
    const isElsewhere = !acts.includes(chosen);
    say(answered.kind, isElsewhere ? `Answer for ${answered.about}: ${answered.text}` : answered.text, answered.planId);
    button.disabled = false;
    if (came.isOpen || isElsewhere) return;
    if (came.isDone) acts = acts.filter(act => act !== chosen);
    close();
    chosen.closed();
  }
  document.addEventListener("session", () => { if (!isOpen || !may()) close(); });
  return {
    offer(...given) {
      const next = given.filter(Boolean), ids = list => JSON.stringify(list.map(act => act.id));
      if (isOpen || ids(acts) === ids(next)) return;
      if (next.length && answered && next.every(act => act.id !== answered.id)) say(answered.kind, `Answer for ${answered.about}: ${answered.text}`, answered.planId);
      acts = next;
      close();
    },
    // Whoever goes elsewhere leaves the form, and sees no answer there.
    reset() {
      acts = [];
      close();
      forget();
    },
    get isOpen() { return isOpen; },
  };
};

const box = document.getElementById("view-act"), onView = actPlace(box);
window.addEventListener("hashchange", () => { box.hidden = true; onView.reset(); });
// The place for acts on what a page behind the address is of; hidden until that page offers something.
export function offerOnView(...acts) {
  box.hidden = !acts.some(Boolean);
  onView.offer(...acts);
}
