// A window on the server's rows: contiguous, newest first, bounded. Contains no elements.
//
// `above` and `below` count the rows outside the window: exact if the window grew or was trimmed, estimated
// after a jump. Keys are the cursor: the ids of requests, or of groups, whose row stands for several requests. The keys
// of an inbox may have gaps, so distances in rows are corrected by keys.

const PAGE = 100;
const MOST = 1200; // rows kept; trimmed at the far end
const HOPS = 12; // pages that one call follows at most

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
    this.above = 0;
    this.below = 0;
    this.newest = 0; // the highest id
    this.total = 0;
    this.busy = false;
    this.waiting = null; // steps for after the reset that is under way: its response may be older than they are
    this.loaded = false; // true after the first response, even if there are no rows
    this.turn += 1;
  }

  get count() {
    return this.above + this.rows.length + this.below;
  }

  /** The number of requests: exact if all rows are loaded. */
  get requests() {
    const loaded = sum(this.rows);
    return this.above || this.below ? Math.max(this.total, loaded) : loaded;
  }

  /** The row at an index of the whole list; undefined if it isn't loaded. */
  at(index) {
    return this.rows[index - this.above];
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
    this.above = 0;
    const loaded = sum(this.rows);
    this.total = total;
    this.below = page.next === null ? 0 : atLeast(Math.round((total - loaded) * (this.rows.length / loaded)));
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

  /** Load the rows from `first` to `last` if they are missing. */
  async need(first, last) {
    if (this.busy || !this.count) return;
    const end = this.above + this.rows.length;
    const far = 3 * PAGE;
    if (this.rows.length && (first > end + far || last < this.above - far)) await this.once(() => this.jump(first));
    else if (this.below > 0 && last >= end - PAGE / 4) await this.once(() => this.older());
    else if (this.above > 0 && first < this.above + PAGE / 4) await this.once(() => this.newer());
  }

  async once(step) {
    const turn = this.turn;
    this.busy = true;
    try {
      await step();
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  async page(before) {
    const turn = this.turn;
    const page = await this.load({ before, limit: PAGE });
    return turn === this.turn ? page : null;
  }

  async older() {
    const page = await this.page(this.rows.at(-1).key);
    if (page === null) return;
    this.rows.push(...page.requests);
    this.below = page.next === null ? 0 : atLeast(this.below - page.requests.length);
    const extra = Math.max(0, this.rows.length - MOST);
    this.rows.splice(0, extra);
    this.above += extra;
    this.changed(0);
  }

  async newer() {
    const top = this.rows[0].key;
    let span = Math.ceil(this.gap() * PAGE);
    let fresh = [];
    for (let hop = 0; hop < HOPS && !fresh.length; hop++, span *= 4) {
      if ((fresh = await this.between(top, Math.min(top + span, this.newest) + 1)) === null) return;
      if (top + span >= this.newest) break;
    }
    this.rows.unshift(...fresh);
    const ended = !fresh.length || fresh[0].id >= this.newest;
    const left = ended ? 0 : atLeast(this.above - fresh.length);
    const shift = left + fresh.length - this.above; // if the estimate was wrong, the visible rows must not move
    this.above = left;
    const extra = Math.max(0, this.rows.length - MOST);
    this.rows.length -= extra;
    this.below += extra;
    this.changed(shift);
  }

  /** The rows with keys over `low` and under `before`, however many pages they take. */
  async between(low, before) {
    const found = [];
    for (let hop = 0; hop < HOPS; hop++) {
      const page = await this.page(before);
      if (page === null) return null;
      const fresh = page.requests.filter((row) => row.key > low);
      found.push(...fresh);
      if (fresh.length < page.requests.length || page.next === null || !fresh.length) return found;
      before = fresh.at(-1).key;
    }
    return found;
  }

  /** Jump to an index far from the window: estimate its key from the distance, and start the window there. */
  async jump(index) {
    const anchor = index < this.above ? this.rows[0] : this.rows.at(-1);
    const distance = index < this.above ? index - this.above : index - (this.above + this.rows.length - 1);
    let before = Math.round(anchor.key - distance * this.gap()) + 1;
    const total = this.count;
    let page = null;
    for (let hop = 0; hop < HOPS; hop++) {
      if ((page = await this.page(Math.max(1, Math.min(before, this.newest + 1)))) === null) return;
      if (page.requests.length) break;
      before = Math.round((before + anchor.key) / 2); // past the end: halve the distance
    }
    if (!page.requests.length) return;
    this.rows = page.requests;
    const ended = page.next === null;
    this.above = this.rows[0].id >= this.newest ? 0 : ended ? total - this.rows.length : Math.min(index, total - this.rows.length);
    this.above = Math.max(0, this.above);
    this.below = ended ? 0 : Math.max(total - this.above - this.rows.length, 1);
    this.changed(0);
  }

  /** The mean distance of keys in the window. */
  gap() {
    const { rows } = this;
    return rows.length < 2 ? 1 : Math.max(1, (rows[0].key - rows.at(-1).key) / (rows.length - 1));
  }

  /**
   * Add new requests, each of them to the row of its group if there is one.
   * @param {Row[]} rows the newest of them, newest first; rows of whole groups replace those that are there
   * @param {number} count how many there were in all
   * @param {boolean} whole
   */
  arrived(rows, count, whole = false) {
    const fresh = rows.filter((row) => row.id > this.newest);
    const skipped = count - rows.length;
    if (!fresh.length) return;
    this.newest = Math.max(...fresh.map((row) => row.id));
    const replaced = whole ? this.rows.filter((row) => fresh.some((one) => one.key === row.key)) : [];
    this.total += skipped > 0 ? count : sum(fresh) - sum(replaced);
    const added = skipped > 0 && this.above === 0 ? this.restart(fresh, skipped) : skipped + this.merge(fresh, whole);
    if (skipped > 0 && this.above > 0) this.above += skipped;
    this.changed(added);
  }

  /** Add rows to the top; return how many there are more. */
  merge(fresh, whole) {
    let added = 0;
    for (const row of fresh.toReversed()) {
      const place = row.key === row.id ? -1 : this.rows.findIndex((one) => one.key === row.key);
      if (place >= 0) this.rows[place] = whole ? row : joined(this.rows[place], row);
      else if (this.above === 0) this.rows.unshift(row);
      else if (row.key === row.id) this.above += 1;
      else continue; // of a group above the window
      added += place < 0;
    }
    const extra = this.above > 0 ? 0 : Math.max(0, this.rows.length - MOST);
    this.rows.length -= extra;
    this.below += extra;
    return added;
  }

  // More than a window in one frame: older rows are loaded on demand.
  restart(fresh, skipped) {
    this.below += this.rows.length + skipped;
    this.rows = fresh;
    return fresh.length + skipped;
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

// There are more rows, but the estimate is used up.
const atLeast = (estimate) => (estimate > 0 ? estimate : PAGE);
