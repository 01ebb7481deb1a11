// When figures are read again: at an event of serve, and every two seconds where no events come. Shows a connection
// that is lost.
import { badge, put } from "./elements.js";
import { answerOf, ask, isPressed, timeNow } from "./serve.js";
import { hide, show } from "./overview.js";

const TICK_MS = 2000;
const QUIET_MAX_MS = 10000;
const STATUS_MAX_MS = 10000;
const LISTEN_AGAIN_MS = 30000;
const own = id => document.getElementById(id);
let source = null;
let hasEvents = false;
let listenedMs = 0;
let figures = null;
let askedMs = 0;
let answeredMs = null;
let isLost = false;
let isReading = false;
let isDue = false;

function connected() {
  answeredMs = Date.now();
  isLost = false;
  own("lost").hidden = true;
  own("overview").classList.remove("old");
}
// Figures of before stay to be looked at, and look it.
function lost(verdict, text) {
  const of = answeredMs ? `Figures are of ${new Date(answeredMs).toLocaleTimeString([], { hour12: false })}.` : "";
  isLost = true;
  put("verdict", badge("bad", verdict));
  put("lost", `${text} ${of}`);
  own("lost").hidden = false;
  own("overview").classList.add("old");
  document.title = `${verdict} · Kafka load rebalancer`;
  document.dispatchEvent(new CustomEvent("connection-lost"));
}
// Of a session that serve knows no more, as after its restart, the page must ask anew: the form to sign in shows again.
function closed() {
  const wasOpen = figures !== null;
  figures = null;
  hide();
  if (wasOpen) document.dispatchEvent(new CustomEvent("session-lost"));
}
async function look() {
  askedMs = Date.now();
  try {
    const response = await ask("api/status", { signal: AbortSignal.timeout(STATUS_MAX_MS) });
    if (response.status === 401) closed();
    else if (!response.ok) throw new Error(`HTTP ${response.status}`);
    else figures = await answerOf(response);
  } catch (problem) {
    return lost("the serve process does not answer", "No connection to serve.");
  }
  // Serve may be of a newer release than the page that is still open.
  try {
    if (figures) show(figures, timeNow());
    connected();
  } catch (problem) {
    lost("this page is out of date", "This page can't show what serve answers: reload it.");
  }
}
// What changes while an answer comes is in the next one.
async function read() {
  isDue = true;
  if (isReading) return;
  isReading = true;
  while (isDue) {
    isDue = false;
    await look();
  }
  isReading = false;
}

function mute() {
  if (source) source.close();
  source = null;
  hasEvents = false;
}
// A stream takes one of the six connections that a browser has to a site: pages that nobody sees leave it to others.
function listen() {
  if (document.hidden || (source && source.readyState !== EventSource.CLOSED)) return;
  mute();
  listenedMs = Date.now();
  source = new EventSource("api/v1/events");
  source.addEventListener("open", () => {
    hasEvents = true;
  });
  source.addEventListener("error", () => {
    hasEvents = false;
  });
  // One with an execution or a decision always comes, too: their tables are among those of the status.
  source.addEventListener("status", read);
}
// Ages of figures go on between two answers. Where events fail to come, the connection may be lost without a word.
function tick() {
  const isQuiet = Date.now() - askedMs > QUIET_MAX_MS;
  if (!hasEvents || isLost || isQuiet) read();
  else if (figures && !isPressed()) show(figures, timeNow());
  if (Date.now() - listenedMs > LISTEN_AGAIN_MS) listen();
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) mute();
  else {
    listen();
    read();
  }
});
document.addEventListener("session", () => {
  listen();
  read();
});
listen();
read();
setInterval(tick, TICK_MS);
