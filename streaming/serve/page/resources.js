// Resources as serve describes them: their words, the figures that add up to them, and how a figure is written.
import { table } from "./elements.js";
import { bytes, count, isKnown, rate, ratio, words } from "./units.js";

// What a plan promises of each resource: heads of columns, and the ends of the members' names.
export const PLANNED = [
  ["before", "max_over_mean_before"],
  ["planned", "max_over_mean_after"],
  ["best possible", "lower_bound"],
];
const FORMATS = { "bytes/s": rate, bytes };
// Other rates have their unit after the number; a number of partitions is a number alone.
function format(unit) {
  if (unit in FORMATS) return FORMATS[unit];
  if (!unit.endsWith("/s")) return count;
  return value => (isKnown(value) ? `${count(value)} ${unit}` : "–");
}
let known = new Map();

export const resources = {
  learn(described) {
    known = new Map(described.map(one => [one.name, one]));
  },
  names: () => [...known.keys()],
  // The one that is shown while nobody has chosen another.
  main: () => resources.names()[0],
  // Those that brokers report, so that windows have figures of them.
  reported: () => [...known.values()].filter(one => one.figures.length),
  // Those that each replica reports, too.
  rates: () => resources.reported().filter(one => one.unit === "bytes/s"),
  // Columns of a table of partitions or topics.
  columns: () => resources.rates().map(one => [one.words, row => format(one.unit)(row[one.figures[0].name]), "num"]),
  // Columns of a table of brokers; `figure` is what adds a broker's load of a resource up.
  brokerColumns: figure =>
    resources.reported().map(one => [one.words, row => resources.shown(one.name, figure(one, row), row), "num"]),
  words: name => (known.has(name) ? known.get(name).words : words(name)),
  figures: name => known.get(name).figures,
  unit: name => format(known.has(name) ? known.get(name).unit : ""),
  // A broker's figure of a resource; where nobody knows it, the bounds that the broker has of it.
  shown(name, value, broker) {
    const write = resources.unit(name);
    const least = broker[`${name}_at_least_per_sec`] ?? null;
    const most = broker[`${name}_at_most_per_sec`] ?? null;
    if (value !== null || least === null) return write(value);
    return most === null ? `≥ ${write(least)}` : `${write(least)} to ${write(most)}`;
  },
  // The highest load per mean of each resource that is known before; null where none is. `figures` are as in PLANNED.
  skewTable(head, of, figures) {
    const end = `_${figures[0][1]}`;
    const names = Object.keys(of)
      .filter(key => key.endsWith(end) && of[key] !== null)
      .map(key => key.slice(0, -end.length));
    if (!names.length) return null;
    const columns = figures.map(([words, figure]) => [words, name => ratio(of[`${name}_${figure}`]), "num"]);
    return table(names, [[head, resources.words], ...columns]);
  },
};
