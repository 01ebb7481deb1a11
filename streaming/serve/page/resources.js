// Resources as serve describes them: their words, the figures that add up to them, and how a figure is written.
import { bytes, count, rate, words } from "./units.js";

const FORMATS = { "bytes/s": rate, bytes };
// Other rates have their unit after the number; a number of partitions is a number alone.
const format = unit => FORMATS[unit] || (unit.endsWith("/s") ? value => value === null || value === undefined ? "–" : `${count(value)} ${unit}` : count);
let known = new Map();

export const resources = {
  learn(described) { known = new Map(described.map(one => [one.name, one])); },
  names: () => [...known.keys()],
  // The one that is shown while nobody has chosen another.
  main: () => resources.names()[0],
  // Those that brokers report, so that windows have figures of them.
  reported: () => [...known.values()].filter(one => one.figures.length),
  // Those that each replica reports, too.
  rates: () => resources.reported().filter(one => one.unit === "bytes/s"),
  // Columns of a table of partitions or topics: their heads, and the cells of a row.
  heads: () => resources.rates().map(one => [one.words, "num"]),
  cells: row => resources.rates().map(one => [resources.unit(one.name)(row[one.figures[0].name]), "num"]),
  words: name => known.has(name) ? known.get(name).words : words(name),
  figures: name => known.get(name).figures,
  unit: name => format(known.has(name) ? known.get(name).unit : ""),
  // A broker's figure of a resource; where nobody knows it, the bounds that the broker has of it.
  shown(name, value, broker) {
    const write = resources.unit(name), least = broker[`${name}_at_least_per_sec`] ?? null, most = broker[`${name}_at_most_per_sec`] ?? null;
    return value !== null || least === null ? write(value) : most === null ? `≥ ${write(least)}` : `${write(least)} to ${write(most)}`;
  },
};
