// The service's clock; setting it forward expires notifications.

import { call, get } from "./api.js";
import { fill, h, simulated, toast } from "./dom.js";
import { clock, duration } from "./format.js";

const STEPS = [
  ["+1 minute", 60],
  ["+1 hour", 3600],
  ["+1 day", 86_400],
];

export class Clock {
  constructor() {
    this.text = h("p", { role: "status" });
    this.root = h(
      "section",
      { class: "block" },
      h("h3", null, "Clock ", simulated("For all inboxes: every push that has lived its ttl by the new time expires now.")),
      this.text,
      h("div", { class: "row" }, STEPS.map(([name, seconds]) => h("button", { type: "button", class: "button", onclick: () => this.advance(seconds) }, name))),
    );
  }

  async load() {
    this.put(await get("/clock").catch(() => null));
  }

  async advance(seconds) {
    try {
      this.put(await call("POST", "/clock", { body: { advance: seconds } }));
    } catch (error) {
      toast(error.message, "error");
    }
  }

  put(now) {
    if (now) fill(this.text, "The service's time is ", h("span", { class: "mono" }, clock(now.now)), now.ahead ? `, ${duration(now.ahead)} ahead` : "");
  }
}
