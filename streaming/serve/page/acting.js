// Acts of whoever is signed in: a button, a confirmation that is typed, the request, and its answer in words.
import { html, render } from "./lit-html/lit-html.js";
import { anchor } from "./elements.js";
import { answerOf, ask } from "./serve.js";
import { capital, zone } from "./units.js";

const ROLES = ["operator", "admin"];
const TRY_AGAIN = [408, 429, 503];
const ACT_MAX_MS = 90000;
const SILENT = { kind: "", text: "", planId: null };
let session = null;
let places = 0;
document.addEventListener("session", event => {
  session = event.detail;
});

const may = () => Boolean(session && session.csrf_token && ROLES.includes(session.role));
function whyNot(verbs) {
  if (!session) return "";
  const text = verbs.join(" or ");
  if (session.signed_in && !session.role)
    return `You have no role on this cluster: to ${text}, an operator or admin of it signs in.`;
  if (session.signed_in)
    return `Role ${session.role} looks and does not act: to ${text}, an operator or admin signs in.`;
  return session.by_password || session.by_issuer ? `To ${text}, sign in as an operator or admin.` : session.detail;
}
// randomUUID is missing on pages without TLS.
function newKey() {
  const random = [...crypto.getRandomValues(new Uint8Array(16))];
  return random.map(byte => byte.toString(16).padStart(2, "0")).join("");
}
const plain = text => text.trim().replace(/\s+/g, " ");

// What came of it; `isOpen` where the same request may be sent again, with its key: it acts once.
async function send(path, key, body) {
  const headers = { "X-CSRF-Token": session.csrf_token, "Idempotency-Key": key };
  if (body) headers["Content-Type"] = "application/json";
  try {
    const response = await ask(path, {
      method: "POST",
      cache: "no-store",
      signal: AbortSignal.timeout(ACT_MAX_MS),
      headers,
      body: body && JSON.stringify(body),
    });
    const answer = await answerOf(response);
    if (response.status === 401) document.dispatchEvent(new CustomEvent("session-lost"));
    const isOpen = TRY_AGAIN.includes(response.status);
    return { isDone: response.ok, isOpen, text: answer.detail, planId: answer.plan_id };
  } catch (problem) {
    return { isDone: false, isOpen: true, text: "no answer came; send it again: it acts once" };
  }
}

// The form of an act. Its parts tell `on` what a person does: `typed`, `submitted` or `left`.
function formOf(act, name, isReady, on) {
  // The browser has a person fill in all of a time or nothing; what is no time for the act, the answer explains.
  const time = act.time
    ? html`<p><label for="${name}-time">${act.time.text} (${zone()}; empty for at once) </label
        ><input type="datetime-local" id="${name}-time" name="time"></p>`
    : null;
  const flag = act.flag
    ? html`<p><input type="checkbox" id="${name}-flag" name="flag"
        ><label for="${name}-flag"> ${act.flag.text}</label></p>`
    : null;
  return html`<form method="post" class="act" @submit=${on.submitted} @keydown=${on.left}>
    <p id="${name}-ask">${act.ask}</p>${time}${flag}
    <label for=${name}>Type <b class="mono">${act.typed}</b> to ${act.verb}</label>
    <input id=${name} name="typed" autocomplete="off" autocapitalize="off" spellcheck="false" maxlength="40"
      aria-describedby="${name}-ask" @input=${on.typed}>
    <button class="acts" ?disabled=${!isReady}>${capital(act.verb)}</button>
    <button type="button" @click=${on.left}>Cancel</button>
  </form>`;
}
// The members of the body that a filled form asks for; undefined where none.
function bodyOf(act, form) {
  const field = name => form.elements.namedItem(name);
  const body = {};
  if (act.flag && field("flag").checked) body[act.flag.name] = true;
  if (act.time && field("time").value) body[act.time.name] = new Date(field("time").value).getTime();
  return Object.keys(body).length ? body : undefined;
}

// `offer` takes acts, or null for none: of each its `id`, `about` (what it acts on), `verb`, `ask` (what it does),
// `typed` (what to type), `path`, `flag` where a member of the body may be true (its `name` and `text`), `time` where
// one may be a time (the same), and maybe `closed`, which is called when the person has decided: meanwhile nothing else
// is offered.
// An answer stays until the next form is opened, or until `forget`: it may come when something else is offered already.
export function actPlace(place) {
  const name = `act-${(places += 1)}`;
  let acts = [];
  let answered = null;
  let note = SILENT;
  // The act whose form is open, the key of its request, and whether the form may be sent.
  let chosen = null;
  let key = "";
  let isReady = false;

  function offered() {
    if (!acts.length) return null;
    if (!may()) return html`<p class="line soft">${whyNot(acts.map(act => act.verb))}</p>`;
    const button = act => html`<button type="button" @click=${() => open(act)}>${capital(act.verb)}…</button>`;
    return html`<p class="fields">${acts.map(button)}</p>`;
  }
  function draw() {
    const plan = note.planId ? [" ", anchor(`#plan=${note.planId}`, "Look at the plan")] : null;
    render(
      html`<div>${chosen ? formOf(chosen, name, isReady, { typed, submitted, left }) : offered()}</div>
        <p class="line ${note.kind}" role="status" ?hidden=${!note.text}>${note.text}${plan}</p>`,
      place,
    );
  }
  function say(kind, text, planId) {
    note = { kind, text, planId };
    draw();
  }
  const sayElsewhere = () => say(answered.kind, `Answer for ${answered.about}: ${answered.text}`, answered.planId);
  function forget() {
    answered = null;
    note = SILENT;
  }
  function close() {
    chosen = null;
    draw();
  }
  function open(act) {
    chosen = act;
    key = newKey();
    isReady = false;
    forget();
    draw();
    document.getElementById(name).focus();
  }
  function typed(event) {
    isReady = plain(event.target.value) === chosen.typed;
    draw();
  }
  function left(event) {
    if (event.type === "keydown" && event.key !== "Escape") return;
    const act = chosen;
    close();
    place.querySelectorAll("button")[acts.indexOf(act)]?.focus();
    act.closed?.();
  }
  function submitted(event) {
    event.preventDefault();
    const form = event.currentTarget;
    if (plain(form.elements.namedItem("typed").value) === chosen.typed) carryOut(chosen, bodyOf(chosen, form));
  }
  async function carryOut(act, body) {
    isReady = false;
    say("soft", "sent …");
    const came = await send(act.path, key, body);
    answered = {
      id: act.id,
      about: act.about,
      planId: came.isDone ? came.planId : null,
      kind: came.isDone ? "good" : "bad",
      text: `${came.isDone ? "Done" : came.isOpen ? "Not known yet" : "Refused"}: ${came.text}`,
    };
    const isElsewhere = !acts.includes(act);
    if (chosen === act) isReady = true;
    if (isElsewhere) sayElsewhere();
    else say(answered.kind, answered.text, answered.planId);
    if (came.isOpen || isElsewhere) return;
    if (came.isDone) acts = acts.filter(one => one !== act);
    close();
    act.closed?.();
  }
  document.addEventListener("session", () => {
    if (!chosen || !may()) close();
  });
  return {
    offer(...given) {
      const next = given.filter(Boolean);
      const ids = list => JSON.stringify(list.map(act => act.id));
      if (chosen || ids(acts) === ids(next)) return;
      if (next.length && answered && next.every(act => act.id !== answered.id)) sayElsewhere();
      acts = next;
      close();
    },
    // Whoever goes elsewhere leaves the form, and sees no answer there.
    reset() {
      acts = [];
      forget();
      close();
    },
    get isOpen() {
      return chosen !== null;
    },
  };
}

const box = document.getElementById("view-act");
const onView = actPlace(box);
window.addEventListener("hashchange", () => {
  box.hidden = true;
  onView.reset();
});
// The place for acts on what a page behind the address is of; hidden until that page offers something.
export function offerOnView(...acts) {
  box.hidden = !acts.some(Boolean);
  onView.offer(...acts);
}
