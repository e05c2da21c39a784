// The notice below the bar: pushes with other keys, whose inboxes are not shown.

import { ALL } from "./api.js";
import { bdi, fill, h } from "./dom.js";
import { plural } from "./format.js";
import { icon } from "./icons.js";

export class Elsewhere {
  /** @param {(inbox: string) => void} choose opens an inbox */
  constructor(choose) {
    this.choose = choose;
    this.root = h("div", { class: "notices", role: "status" });
    this.seen = null; // inbox -> its state when the inbox or the page was opened
  }

  /**
   * @param {{inbox: string, label: string, requests: number, last: number | null}[]} inboxes the one with the last request first
   * @param {string | null} chosen
   */
  show(inboxes, chosen) {
    const first = this.seen === null;
    this.seen ??= new Map();
    const others = [];
    let pushes = 0;
    for (const one of inboxes) {
      const seen = this.seen.get(one.inbox) ?? { requests: 0, last: 0 };
      if (first || chosen === null || chosen === ALL || one.inbox === chosen || one.last <= seen.last) {
        this.seen.set(one.inbox, one);
      } else {
        others.push(one);
        pushes += Math.max(1, one.requests - seen.requests); // old requests may have been dropped
      }
    }
    const key = JSON.stringify([pushes, others.map((one) => one.label)]);
    if (key === this.shown) return; // a redraw would lose the focus
    this.shown = key;
    const count = plural(pushes, "push", "pushes");
    const [only] = others;
    const text = others.length === 1 ? [`${count} with another key, in `, bdi(only.label)] : `${count} with ${others.length} other keys`;
    const open = () => this.choose(others.length === 1 ? only.inbox : ALL);
    fill(this.root, pushes ? notice(text, open, () => this.forget(inboxes, chosen)) : null);
  }

  forget(inboxes, chosen) {
    for (const one of inboxes) this.seen.set(one.inbox, one);
    this.show(inboxes, chosen);
  }
}

function notice(text, show, dismiss) {
  return h(
    "p",
    { class: "notice" },
    h("button", { type: "button", class: "notice-show", onclick: show }, icon("inbox"), h("span", null, text), h("b", null, "▸ Show")),
    h("button", { type: "button", class: "button small ghost", onclick: dismiss }, "Dismiss"),
  );
}
