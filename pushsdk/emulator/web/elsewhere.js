// Notices below the bar: pushes with other keys, whose inboxes are not shown, and requests that reached no inbox.

import { ALL } from "./api.js";
import { bdi, fill, h } from "./dom.js";
import { plural } from "./format.js";
import { icon } from "./icons.js";

export class Elsewhere {
  /** @param {(inbox: string) => void} choose opens an inbox @param {() => void} dismissed called after a notice of requests was closed */
  constructor(choose, dismissed) {
    this.choose = choose;
    this.dismissed = dismissed;
    this.root = h("div", { class: "notices", role: "status" });
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
      if (first || chosen === null || chosen === ALL || one.inbox === chosen || one.last <= seen.last) {
        this.seen.set(one.inbox, one);
      } else {
        others.push(one);
        pushes += Math.max(1, one.requests - seen.requests); // old requests may have been dropped
      }
    }
    const key = JSON.stringify([pushes, others.map((one) => one.label), refused]);
    if (key === this.shown) return; // a redraw would lose the focus
    this.shown = key;
    const count = plural(pushes, "push", "pushes");
    const [only] = others;
    const text = others.length === 1 ? [`${count} with another key, in `, bdi(only.label)] : `${count} with ${others.length} other keys`;
    fill(
      this.root,
      pushes ? notice("inbox", text, () => this.choose(others.length === 1 ? only.inbox : ALL), () => this.forget(inboxes, chosen, refused)) : null,
      refused ? notice("alert", `${plural(refused, "request")} reached no inbox`, () => (location.hash = "#/pushes/refused"), this.dismissed, "refused") : null,
    );
  }

  forget(inboxes, chosen, refused) {
    for (const one of inboxes) this.seen.set(one.inbox, one);
    this.show(inboxes, chosen, refused);
  }
}

function notice(name, text, show, dismiss, kind = "") {
  return h(
    "p",
    { class: `notice ${kind}` },
    h("button", { type: "button", class: "notice-show", onclick: show }, icon(name), h("span", null, text), h("b", null, "▸ Show")),
    h("button", { type: "button", class: "button small ghost", onclick: dismiss }, "Dismiss"),
  );
}
