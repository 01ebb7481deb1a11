"use strict";
// Acts of whoever is signed in: a button, a confirmation that is typed, the request, and its answer in words.
// `actPlace` serves the scripts of the sections. Uses `ask`, `answerOf`, `el` and `patch` of the page.
const actPlace = (() => {
  const ROLES = ["operator", "admin"], TRY_AGAIN = [408, 429, 503], ACT_MAX_MS = 90000;
  let session = null, places = 0;
  document.addEventListener("session", event => { session = event.detail; });

  const may = () => Boolean(session && session.csrf_token && ROLES.includes(session.role));
  function whyNot(verb) {
    if (!session) return "";
    if (session.signed_in) return `Role ${session.role} looks and does not act: to ${verb}, an operator or admin signs in.`;
    return session.by_password || session.by_issuer ? `To ${verb}, sign in as an operator or admin.` : session.detail;
  }
  // randomUUID is missing on pages without TLS.
  const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
  const plain = text => text.trim().replace(/\s+/g, " ");

  // What came of it; `isOpen` where the same request may be sent again, with its key: it acts once.
  async function send(path, key) {
    try {
      const response = await ask(path, {
        method: "POST", cache: "no-store", signal: AbortSignal.timeout(ACT_MAX_MS),
        headers: { "X-CSRF-Token": session.csrf_token, "Idempotency-Key": key },
      });
      const answer = await answerOf(response);
      if (response.status === 401) document.dispatchEvent(new CustomEvent("session-lost"));
      return { isDone: response.ok, isOpen: TRY_AGAIN.includes(response.status), text: answer.detail };
    } catch (problem) {
      return { isDone: false, isOpen: true, text: "no answer came; send it again: it acts once" };
    }
  }

  // `offer` takes null, or an act: its `id`, `about` (what it acts on), `verb`, `ask` (what it does), `typed` (what to
  // type), `path`, and `closed`, which is called when the person has decided: meanwhile nothing else is offered.
  // An answer stays until the next form is opened, or until `forget`: it may come when something else is offered already.
  return place => {
    const name = `act-${places += 1}`, box = el("div", {}), answer = el("p", { class: "line", role: "status", hidden: "" });
    let act = null, key = "", isOpen = false, answered = null;
    place.replaceChildren(box, answer);

    function say(kind, text) {
      answer.className = `line ${kind}`;
      answer.textContent = text;
      answer.hidden = !text;
    }
    function forget() {
      answered = null;
      say("", "");
    }
    function close() {
      isOpen = false;
      if (!act) return patch(box, []);
      if (!may()) return patch(box, [el("p", { class: "line soft" }, whyNot(act.verb))]);
      const button = el("button", { type: "button" }, `${act.verb[0].toUpperCase()}${act.verb.slice(1)}…`);
      button.addEventListener("click", open);
      // Where it is there already it stays: the first click after a while also asks for the session, and must not be lost.
      patch(box, [el("p", { class: "line" }, button)]);
    }
    function open() {
      const chosen = act;
      isOpen = true;
      key = newKey();
      forget();
      const input = el("input", { id: name, autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: "40", "aria-describedby": `${name}-ask` });
      const send = el("button", { disabled: "", class: "acts" }, chosen.verb[0].toUpperCase() + chosen.verb.slice(1));
      const cancel = el("button", { type: "button" }, "Cancel");
      const form = el("form", { method: "post", class: "act" }, el("p", { id: `${name}-ask` }, chosen.ask),
        el("label", { for: name }, "Type ", el("b", { class: "mono" }, chosen.typed), ` to ${chosen.verb}`), input, send, cancel);
      input.addEventListener("input", () => { send.disabled = plain(input.value) !== chosen.typed; });
      const leave = () => { close(); box.querySelector("button")?.focus(); chosen.closed(); };
      cancel.addEventListener("click", leave);
      form.addEventListener("keydown", event => { if (event.key === "Escape") leave(); });
      form.addEventListener("submit", event => {
        event.preventDefault();
        if (plain(input.value) === chosen.typed) carryOut(chosen, send);
      });
      box.replaceChildren(form);
      input.focus();
    }
    async function carryOut(chosen, button) {
      button.disabled = true;
      say("soft", "sent …");
      const came = await send(chosen.path, key);
      answered = { id: chosen.id, about: chosen.about, kind: came.isDone ? "good" : "bad",
        text: `${came.isDone ? "Done" : came.isOpen ? "Not known yet" : "Refused"}: ${came.text}` };
      say(answered.kind, answered.text);
      button.disabled = false;
      if (came.isOpen) return;
      if (came.isDone) act = null;
      close();
      chosen.closed();
    }
    document.addEventListener("session", () => { if (!isOpen || !may()) close(); });
    return {
      offer(next) {
        if (isOpen || (act && next && act.id === next.id)) return;
        if (next && answered && next.id !== answered.id) say(answered.kind, `Answer for ${answered.about}: ${answered.text}`);
        act = next;
        close();
      },
      forget() { if (!isOpen) forget(); },
      get isOpen() { return isOpen; },
    };
  };
})();
