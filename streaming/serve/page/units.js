// Figures as text: counts, bytes, rates, times and shares.

export const isKnown = value => value !== null && value !== undefined;
export const words = resource => resource.replaceAll("_", " ");
export const capital = text => text[0].toUpperCase() + text.slice(1);
export const ratio = value => (typeof value === "number" ? value.toFixed(2) : "–");
export const count = value => (isKnown(value) ? Math.round(value).toLocaleString("en") : "–");
// What the lags of rows are numbers of: records, or offsets of compacted topics; null where some are of each.
function lagUnit(rows) {
  const units = new Set(rows.filter(row => row.lag_records).map(row => row.lag_unit));
  return units.size > 1 ? null : [...units][0] || "records";
}
// The head of a column of lags, and a lag of it, which has its unit where the head has none.
export const lagHead = (rows, text = "lag") => [text, lagUnit(rows)].filter(Boolean).join(", ");
export const lag = (row, rows) =>
  lagUnit(rows) || !row.lag_records ? count(row.lag_records) : `${count(row.lag_records)} ${row.lag_unit}`;
export const counted = (value, one, more) => `${count(value)} ${value === 1 ? one : more}`;
export function changes(plan) {
  const changed = counted(plan.movement_count, "partition changes", "partitions change");
  const whose = plan.movement_count === 1 ? "its" : "their";
  return `${changed}, ${count(plan.leader_movement_count)} of them only ${whose} leader`;
}
export function bytes(value) {
  if (!isKnown(value)) return "–";
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (Math.abs(value) < 1000 || unit === "TB")
      return `${value.toFixed(unit === "B" || value >= 100 ? 0 : 1)} ${unit}`;
    value /= 1000;
  }
}
export const rate = value => (isKnown(value) ? `${bytes(value)}/s` : "–");
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 180000 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}
export const ago = (ms, now) => (isKnown(ms) ? `${span(now - ms)} ago` : "–");
const WHEN = { hour12: false, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
export const when = ms => (isKnown(ms) ? new Date(ms).toLocaleString([], WHEN) : "–");
// The time zone of this browser, in which all times are shown, with how far it is ahead of UTC now.
export function zone() {
  const ahead = -new Date().getTimezoneOffset();
  const pad = number => String(number).padStart(2, "0");
  const minutes = Math.abs(ahead);
  const name = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  return ahead ? `${name} (UTC${ahead < 0 ? "-" : "+"}${pad(Math.floor(minutes / 60))}:${pad(minutes % 60)})` : "UTC";
}
export const percent = value => `${Math.round(100 * value)} %`;
export function signedPercent(value) {
  const whole = Math.round(100 * value) || 0;
  return `${whole > 0 ? "+" : ""}${whole} %`;
}
export const share = (value, whole) => `${Math.min(100, whole > 0 ? (100 * value) / whole : 0)}%`;
