// The numbers of all updates that are on the screen: the first load is thinned out by the server, what follows is added.

import { get } from "./api.js";

const POINTS = 400; // of a first load
const TOO_MANY = 1200; // then it is loaded again, thinned out

export class Store {
  constructor() {
    this.epoch = "";
    this.step = [];
    this.columns = {};
    this.rest = { count: 0, totals: {}, roles: {}, recent_roles: {} };
  }

  async refresh() {
    let more = true;
    while (more) {
      const since = this.step.at(-1) ?? -1;
      const found = await get("updates", { since, points: POINTS, epoch: this.epoch });
      if (found.epoch !== this.epoch) {
        this.step = [];
        this.columns = {};
        this.epoch = found.epoch;
      }
      this.#append(found);
      this.rest = found;
      more = found.more;
      if (!more && this.step.length > TOO_MANY) {
        this.epoch = "";
        more = true;
      }
    }
  }

  column(name) {
    return this.columns[name] ?? [];
  }

  names(prefix) {
    return Object.keys(this.columns).filter((name) => name.startsWith(prefix)).sort();
  }

  #append(found) {
    const before = this.step.length;
    this.step.push(...found.step);
    for (const name of Object.keys(found.columns)) this.columns[name] ??= new Array(before).fill(null);
    for (const [name, values] of Object.entries(this.columns)) {
      values.push(...(found.columns[name] ?? new Array(found.step.length).fill(null)));
    }
  }
}
