// A window on the server's rows: contiguous, newest first, bounded. Contains no elements.
//
// `above` and `below` count the rows outside the window: exact if the window grew or was trimmed, estimated
// after a jump. Ids are the cursor; the ids of an inbox may have gaps, so distances in rows are corrected by ids.

const PAGE = 100;
const MOST = 1200; // rows kept; trimmed at the far end
const HOPS = 12; // pages that one call follows at most

/** @typedef {{id: number}} Row */

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
    this.newest = 0;
    this.busy = false;
    this.loaded = false; // true after the first response, even if there are no rows
    this.turn += 1;
  }

  get count() {
    return this.above + this.rows.length + this.below;
  }

  /** The row at an index of the whole list; undefined if it isn't loaded. */
  at(index) {
    return this.rows[index - this.above];
  }

  /** Restart at the newest row. `total` is the number of rows if it is known. */
  async reset(total = 0) {
    const turn = ++this.turn;
    this.busy = false;
    const page = await this.load({ limit: PAGE });
    if (turn !== this.turn) return;
    this.rows = page.requests;
    this.above = 0;
    this.below = page.next === null ? 0 : atLeast(total - this.rows.length);
    this.newest = this.rows[0]?.id ?? 0;
    this.loaded = true;
    this.changed(0);
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
    const page = await this.page(this.rows.at(-1).id);
    if (page === null) return;
    this.rows.push(...page.requests);
    this.below = page.next === null ? 0 : atLeast(this.below - page.requests.length);
    const extra = Math.max(0, this.rows.length - MOST);
    this.rows.splice(0, extra);
    this.above += extra;
    this.changed(0);
  }

  async newer() {
    const top = this.rows[0].id;
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

  /** The rows with ids over `low` and under `before`, however many pages they take. */
  async between(low, before) {
    const found = [];
    for (let hop = 0; hop < HOPS; hop++) {
      const page = await this.page(before);
      if (page === null) return null;
      const fresh = page.requests.filter((row) => row.id > low);
      found.push(...fresh);
      if (fresh.length < page.requests.length || page.next === null || !fresh.length) return found;
      before = fresh.at(-1).id;
    }
    return found;
  }

  /** Jump to an index far from the window: estimate its id from the distance, and start the window there. */
  async jump(index) {
    const anchor = index < this.above ? this.rows[0] : this.rows.at(-1);
    const distance = index < this.above ? index - this.above : index - (this.above + this.rows.length - 1);
    let before = Math.round(anchor.id - distance * this.gap()) + 1;
    const total = this.count;
    let page = null;
    for (let hop = 0; hop < HOPS; hop++) {
      if ((page = await this.page(Math.max(1, Math.min(before, this.newest + 1)))) === null) return;
      if (page.requests.length) break;
      before = Math.round((before + anchor.id) / 2); // past the end: halve the distance
    }
    if (!page.requests.length) return;
    this.rows = page.requests;
    const ended = page.next === null;
    this.above = this.rows[0].id >= this.newest ? 0 : ended ? total - this.rows.length : Math.min(index, total - this.rows.length);
    this.above = Math.max(0, this.above);
    this.below = ended ? 0 : Math.max(total - this.above - this.rows.length, 1);
    this.changed(0);
  }

  /** The mean distance of ids in the window. */
  gap() {
    const { rows } = this;
    return rows.length < 2 ? 1 : Math.max(1, (rows[0].id - rows.at(-1).id) / (rows.length - 1));
  }

  /**
   * Add new requests.
   * @param {Row[]} rows the newest of them, newest first
   * @param {number} count how many there were in all
   */
  arrived(rows, count) {
    const fresh = rows.filter((row) => row.id > this.newest);
    const skipped = count - rows.length;
    if (!fresh.length) return;
    if (this.above > 0) {
      this.above += fresh.length + skipped;
    } else if (skipped > 0) {
      this.below += this.rows.length + skipped; // more than a window in one frame: older rows are loaded on demand
      this.rows = fresh;
    } else {
      this.rows.unshift(...fresh);
      const extra = Math.max(0, this.rows.length - MOST);
      this.rows.length -= extra;
      this.below += extra;
    }
    this.newest = fresh[0].id;
    this.changed(fresh.length + skipped);
  }

  /** Remove a deleted row. */
  removed(id) {
    const place = this.rows.findIndex((row) => row.id === id);
    if (place >= 0) this.rows.splice(place, 1);
    this.changed(0);
  }
}

// There are more rows, but the estimate is used up.
const atLeast = (estimate) => (estimate > 0 ? estimate : PAGE);
