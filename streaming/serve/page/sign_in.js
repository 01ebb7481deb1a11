// Who is signed in, the form, and the button to sign out. Names come from outside: they only ever become text.
import { answerOf, ask } from "./serve.js";

const own = id => document.getElementById(id);
const form = own("sign-in");
const error = own("sign-in-error");
const who = own("who");
const out = own("sign-out");
const off = own("sign-in-off");
const USE_MS = 60000;
const AGAIN_MS = 2000;
let csrfToken = null;
let usedAt = 0;
let timer = 0;
let isOfIssuer = false;
let isUnknown = false;
let turn = 0;

// The role on the cluster of this page; on the first page of several clusters, the roles on all of them.
function rolesOf(session) {
  const named = Object.entries(session.roles).map(([cluster, role]) => `${role} of ${cluster}`);
  const rest = session.role && (named.length ? `${session.role} of the others` : session.role);
  return [...named, rest].filter(Boolean).join(", ") || "no role on this cluster";
}
function show(session) {
  csrfToken = session.csrf_token;
  isOfIssuer = session.by_issuer && (session.signed_in_by || "").startsWith("oidc ");
  document.dispatchEvent(new CustomEvent("session", { detail: session }));
  clearTimeout(timer);
  who.textContent = session.signed_in ? `${session.name} · ${rolesOf(session)}` : "";
  who.hidden = out.hidden = !session.signed_in;
  form.hidden = session.signed_in || !session.by_password;
  own("sign-in-issuer").hidden = session.signed_in || !session.by_issuer;
  off.hidden = session.signed_in || session.by_password || session.by_issuer;
  own("sign-in-how").textContent = session.detail;
  if (session.signed_in && session.ends_in_ms !== null) timer = setTimeout(look, session.ends_in_ms + 1000);
}
async function request(method, body, headers) {
  const response = await ask("api/v1/session", {
    method,
    cache: "no-store",
    headers: headers || {},
    body: body && JSON.stringify(body),
  });
  const answer = await answerOf(response);
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}
async function look() {
  const mine = (turn += 1);
  usedAt = Date.now();
  try {
    const session = await request("GET");
    if (mine !== turn) return;
    if (isUnknown) error.textContent = "";
    isUnknown = false;
    show(session);
  } catch (problem) {
    if (mine !== turn) return;
    isUnknown = true;
    error.textContent = problem.message;
  }
}
form.addEventListener("submit", async event => {
  event.preventDefault();
  error.textContent = "";
  const fields = form.elements;
  const button = own("sign-in-button");
  button.disabled = true;
  try {
    const session = await request(
      "POST",
      { name: fields.namedItem("name").value, password: fields.namedItem("password").value },
      { "Content-Type": "application/json" },
    );
    turn += 1; // what was asked before is of somebody who was not signed in
    form.reset();
    show(session);
  } catch (problem) {
    fields.namedItem("password").value = "";
    error.textContent = problem.message;
  }
  button.disabled = false;
});
out.addEventListener("click", async () => {
  error.textContent = "";
  const wasOfIssuer = isOfIssuer;
  try {
    show(await request("DELETE", null, { "X-CSRF-Token": csrfToken }));
    // Who stays signed in at the issuer signs in here again without a password: the next person at this browser, too.
    if (wasOfIssuer) location.assign("oidc/sign-out");
  } catch (problem) {
    error.textContent = problem.message;
    look();
  }
});
document.addEventListener("session-lost", look);
// Where the answer did not come: once figures do again. Nobody could sign in, or see that they are, otherwise.
document.addEventListener("status", () => {
  if (isUnknown && Date.now() - usedAt > AGAIN_MS) look();
});
// A person at the page uses the session; the page that refreshes itself does not.
for (const name of ["pointerdown", "keydown"])
  document.addEventListener(name, () => {
    if (csrfToken && Date.now() - usedAt > USE_MS) look();
  });
look();
