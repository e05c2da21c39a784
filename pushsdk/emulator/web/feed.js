// The server's rows, newest first and without gaps, as far as they were scrolled to. Contains no elements.
//
// Keys are the cursor: the ids of requests, or of groups, whose row stands for several requests.

const PAGE = 100;
const MOST = 5000; // rows kept; trimmed at the end
const AHEAD = 25; // rows left when the next page is loaded

/** @typedef {{id: number, key: number, requests: number, failed: number, reached: number}} Row */

export class Feed {
  /**
   * @param {(query: {before?: number, limit: number}) => Promise<{requests: Row[], next: number|null}>} load
   * @param {(shift: number) => void} changed called after each change; `shift` rows were added above the existing ones
   */
  constructor(load, changed) {
    this.load = load;
    this.changed = changed;
    this.turn = 0; // counts resets; responses from before a reset are ignored
    this.clear();
  }

  clear() {
    /** @type {Row[]} */
    this.rows = [];
    this.next = null; // the cursor of older rows, null if there are none
    this.newest = 0; // the highest id
    this.total = 0;
    this.busy = false;
    this.waiting = null; // steps for after the reset that is under way: its response may be older than they are
    this.loaded = false; // true after the first response, even if there are no rows
    this.turn += 1;
  }

  /** The number of requests: exact if all rows are loaded. */
  get requests() {
    const loaded = sum(this.rows);
    return this.next === null ? loaded : Math.max(this.total, loaded);
  }

  /** Restart at the newest row. `total` is the number of requests if it is known. */
  async reset(total = 0) {
    const turn = ++this.turn;
    this.busy = false;
    const waiting = (this.waiting = []);
    const page = await this.load({ limit: PAGE }).finally(() => {
      if (turn === this.turn) this.waiting = null;
    });
    if (turn !== this.turn) return;
    this.rows = page.requests;
    this.next = page.next;
    this.total = total;
    this.newest = Math.max(0, ...this.rows.map((row) => row.id));
    this.loaded = true;
    this.changed(0);
    for (const step of waiting) step();
  }

  /** Run a step now, or after the reset that is under way. */
  settled(step) {
    if (this.waiting) this.waiting.push(step);
    else step();
  }

  /** Load older rows if the list shows nearly the last one. */
  async need(last) {
    if (this.busy || this.next === null || last < this.rows.length - AHEAD) return;
    const { turn } = this;
    this.busy = true;
    try {
      const page = await this.load({ before: this.rows.at(-1).key, limit: PAGE });
      if (turn !== this.turn) return;
      this.rows.push(...page.requests);
      this.next = page.next;
    } finally {
      if (turn === this.turn) this.busy = false;
    }
    this.changed(0);
  }

  /**
   * Add new requests, each of them to the row of its group if there is one.
   * @param {Row[]} rows the newest of them, newest first; rows of whole groups replace those that are there
   * @param {number} count how many there were in all
   * @param {boolean} whole
   */
  arrived(rows, count, whole = false) {
    const fresh = rows.filter((row) => row.id > this.newest);
    if (!fresh.length) return;
    this.newest = Math.max(...fresh.map((row) => row.id));
    const skipped = count > rows.length;
    const replaced = whole ? this.rows.filter((row) => fresh.some((one) => one.key === row.key)) : [];
    this.total += skipped ? count : sum(fresh) - sum(replaced);
    if (skipped) this.rows = fresh; // older rows are loaded on demand
    const added = skipped ? fresh.length : this.merge(fresh, whole);
    this.rows.length = Math.min(this.rows.length, MOST);
    if (skipped || this.rows.length === MOST) this.next = this.rows.at(-1).key;
    this.changed(added);
  }

  /** Add rows to the top; return how many there are more. */
  merge(fresh, whole) {
    const before = this.rows.length;
    for (const row of fresh.toReversed()) {
      const place = row.key === row.id ? -1 : this.rows.findIndex((one) => one.key === row.key);
      if (place >= 0) this.rows[place] = whole ? row : joined(this.rows[place], row);
      else this.rows.unshift(row);
    }
    return this.rows.length - before;
  }

  /** Remove a deleted row. */
  removed(id) {
    const place = this.rows.findIndex((row) => row.id === id);
    if (place >= 0) this.rows.splice(place, 1);
    this.changed(0);
  }
}

const sum = (rows) => rows.reduce((all, row) => all + row.requests, 0);

/** The row of a group after one more request. */
const joined = (group, row) => ({
  ...row,
  requests: group.requests + row.requests,
  failed: group.failed + row.failed,
  reached: group.reached + row.reached,
});
