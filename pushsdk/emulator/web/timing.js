// Timing: delayed calls that coalesce, and live rows delivered once per frame.

/** A function that runs once, `ms` after its first call. */
export function later(ms, run) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      run();
    }, ms);
  };
}

/** True if the page has room for list and push side by side. */
export const wide = () => matchMedia("(min-width: 761px)").matches;

const KEPT = 400; // newest rows of one frame to parse; the list loads the others

/**
 * Collects messages of the stream and delivers them once per frame: at 5,000 requests a second the page parses and
 * draws visible rows only, and counts the rest.
 */
export class Frames {
  /** @param {{requests: (rows: object[], count: number) => void, other: (event: string, data: unknown) => void}} to */
  constructor(to) {
    this.to = to;
    this.clear();
    this.planned = false;
  }

  clear() {
    /** @type {string[]} */
    this.rows = [];
    this.count = 0;
    this.others = new Map(); // the other messages, each once
  }

  /** @param {import("./stream.js").Message[]} messages */
  take(messages) {
    for (const { event, data } of messages) {
      if (event === "request") {
        this.rows.push(data);
        this.count += 1;
      } else {
        this.others.set(event + data, [event, data]);
      }
    }
    if (this.rows.length > 4 * KEPT) this.rows.splice(0, this.rows.length - KEPT);
    if (this.planned) return;
    this.planned = true;
    // Browsers draw no frames for a page in the background.
    if (document.hidden) setTimeout(() => this.flush(), 500);
    else requestAnimationFrame(() => this.flush());
  }

  flush() {
    this.planned = false;
    const { rows, count, others } = this;
    this.clear();
    const newest = rows.slice(-KEPT).reverse().map(parsed).filter((row) => row !== null);
    if (newest.length) this.to.requests(newest, Math.max(count, newest.length));
    for (const [event, data] of others.values()) this.to.other(event, parsed(data));
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
