// Resources as serve describes them: their words, the figures that add up to them, and how a figure is written.
import { bytes, count, rate, words } from "./units.js";

const FORMATS = { "bytes/s": rate, bytes, partitions: count };
let known = new Map();

export const resources = {
  learn(described) { known = new Map(described.map(one => [one.name, one])); },
  names: () => [...known.keys()],
  // Those that brokers report, so that windows have figures of them.
  reported: () => [...known.values()].filter(one => one.figures.length),
  // Those that each replica reports, too.
  rates: () => resources.reported().filter(one => one.unit === "bytes/s"),
  words: name => known.has(name) ? known.get(name).words : words(name),
  figures: name => known.get(name).figures,
  unit: name => FORMATS[known.has(name) ? known.get(name).unit : ""] || count,
};
