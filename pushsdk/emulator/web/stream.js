// Server-sent events over fetch, because EventSource can't send an Authorization header.

/** @typedef {{event: string, data: string}} Message */

const SILENCE = 60_000; // without a byte for so long the connection is dead
const SHORTEST = 300;
const LONGEST = 5000;

/** An incremental parser of `text/event-stream`. */
class Parser {
  constructor() {
    this.rest = "";
    this.event = "";
    this.data = [];
  }

  /** @param {string} text @returns {Message[]} the messages completed by this text */
  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    const messages = [];
    for (const line of lines) {
      if (line === "") {
        if (this.data.length) messages.push({ event: this.event || "message", data: this.data.join("\n") });
        this.event = "";
        this.data = [];
      } else {
        this.field(line);
      }
    }
    return messages;
  }

  field(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the server's heartbeat
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
  }
}

/**
 * Follow a stream until it is closed.
 * @param {{address: () => string, headers: () => object,
 *   received: (messages: Message[]) => void, state: (state: "live" | "reconnecting", status?: number) => void}} options
 * @returns {() => void} closes it
 */
export function follow({ address, headers, received, state }) {
  const closing = new AbortController();
  let wait = SHORTEST;

  async function read() {
    const attempt = new AbortController();
    const end = () => attempt.abort();
    closing.signal.addEventListener("abort", end);
    let watch = setTimeout(end, SILENCE);
    try {
      const response = await fetch(address(), {
        headers: { ...headers(), Accept: "text/event-stream" },
        signal: attempt.signal,
        cache: "no-store",
        credentials: "omit",
      });
      if (!response.ok || !response.body) throw Object.assign(new Error("refused"), { status: response.status });
      state("live");
      wait = SHORTEST;
      const parser = new Parser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watch);
        watch = setTimeout(end, SILENCE);
        const messages = parser.feed(value);
        if (messages.length) received(messages);
      }
    } finally {
      clearTimeout(watch);
      closing.signal.removeEventListener("abort", end);
    }
  }

  async function run() {
    while (!closing.signal.aborted) {
      let status;
      try {
        await read();
      } catch (error) {
        status = error.status;
      }
      if (closing.signal.aborted) return;
      state("reconnecting", status);
      await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
      wait = Math.min(wait * 2, LONGEST);
    }
  }

  run();
  return () => closing.abort();
}
