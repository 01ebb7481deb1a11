// All that the page asks of serve, and the time by serve's clock.
// The time of serve, by which ages and histories are, however wrong the clock of this machine is. The header has whole
// seconds, and an answer takes its time: what is less off is none.

const CLOCK_OFF_MIN_MS = 5000;
const ANSWER_MAX_MS = 30000;
const HELD_MAX_MS = 5000;
let clockOffMs = 0;
let pressed = null;
export const timeNow = () => Date.now() + clockOffMs;
function noteTime(date, askedMs) {
  const off = Date.parse(date) - (askedMs + Date.now()) / 2;
  if (Number.isFinite(off) && Date.now() - askedMs < CLOCK_OFF_MIN_MS)
    clockOffMs = Math.abs(off) < CLOCK_OFF_MIN_MS ? 0 : Math.round(off);
}
// All that scripts ask of serve. An answer that never comes is given up, as a connection may be lost without a word,
// and what answers in serve's place, such as a proxy, does so in HTML.
export async function ask(path, options) {
  const askedMs = Date.now();
  try {
    const response = await fetch(path, {
      cache: "no-cache",
      credentials: "same-origin",
      signal: AbortSignal.timeout(ANSWER_MAX_MS),
      ...options,
    });
    noteTime(response.headers.get("date"), askedMs);
    return response;
  } catch (problem) {
    throw new Error("serve does not answer");
  }
}
export async function answerOf(response) {
  try {
    const answer = await response.json();
    await pressed;
    return answer;
  } catch (problem) {
    throw new Error(response.ok ? "the answer of serve broke off" : `serve does not answer: HTTP ${response.status}`);
  }
}
// While a pointer is down no answer is shown: figures above could push what is pressed away, and the click were lost.
// The click comes after the pointer is up. A pointer that is lost, as on a scroll bar, holds answers for a while only.
addEventListener(
  "pointerdown",
  () => {
    let release = null;
    const mine = new Promise(resolve => {
      release = () =>
        setTimeout(() => {
          if (pressed === mine) pressed = null;
          resolve();
        });
    });
    pressed = mine;
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, release, { once: true });
    setTimeout(release, HELD_MAX_MS);
  },
  { capture: true },
);
export const isPressed = () => pressed !== null;
