// A badge beside the inbox: pushes in other inboxes, and requests that reached none.

import { ALL } from "./api.js";
import { fill, h } from "./dom.js";
import { plural } from "./format.js";
import { icon } from "./icons.js";

export class Elsewhere {
  /** @param {(inbox: string) => void} choose opens an inbox */
  constructor(choose) {
    this.choose = choose;
    this.root = h("div", { class: "badges", role: "status" });
    this.seen = null; // inbox -> its state when the inbox or the page was opened
  }

  /**
   * @param {{inbox: string, label: string, requests: number, last: number | null}[]} inboxes the one with the last request first
   * @param {string | null} chosen
   * @param {number} refused requests that reached no inbox, and that nobody looked at
   */
  show(inboxes, chosen, refused) {
    const first = this.seen === null;
    this.seen ??= new Map();
    const others = [];
    let pushes = 0;
    for (const one of inboxes) {
      const seen = this.seen.get(one.inbox) ?? { requests: 0, last: 0 };
      if (first || chosen === ALL || one.inbox === chosen || one.last <= seen.last) {
        this.seen.set(one.inbox, one);
      } else {
        others.push(one);
        pushes += Math.max(1, one.requests - seen.requests); // old requests may have been dropped
      }
    }
    const where = others.length === 1 ? others[0].label : `${others.length} other inboxes`;
    const key = JSON.stringify([pushes, where, refused]);
    if (key === this.shown) return; // a redraw would lose the focus
    this.shown = key;
    fill(
      this.root,
      pushes ? badge("inbox", pushes, `${plural(pushes, "push", "pushes")} in ${where}`, () => this.choose(others.length === 1 ? others[0].inbox : ALL)) : null,
      refused ? badge("alert", refused, `${plural(refused, "request")} reached no inbox`, () => (location.hash = "#/pushes/refused"), "refused") : null,
    );
  }
}

function badge(name, count, label, act, kind = "") {
  return h("button", { type: "button", class: `badge ${kind}`, "aria-label": label, title: label, onclick: act }, icon(name), `+${count > 99 ? "99" : count}`);
}
