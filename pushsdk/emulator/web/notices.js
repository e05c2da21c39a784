// Notices above every view: pushes to other inboxes, and requests that reached no inbox.

import { bdi, dialog, fill, h } from "./dom.js";
import { clock, plural } from "./format.js";
import { icon } from "./icons.js";

export class Notices {
  /** @param {(inbox: string) => void} choose opens an inbox */
  constructor(choose) {
    this.choose = choose;
    this.root = document.getElementById("notices");
    this.seen = null; // inbox -> its state when the inbox or the page was opened
    this.read = 0; // time of the newest seen request without an inbox
  }

  /**
   * @param {{inbox: string, label: string, requests: number, last: number | null}[]} inboxes the one with the last request first
   * @param {string | null} chosen
   * @param {{time: number}[]} unmatched newest first
   */
  show(inboxes, chosen, unmatched) {
    const first = this.seen === null;
    this.seen ??= new Map();
    this.others = [];
    this.unmatched = unmatched;
    let pushes = 0;
    for (const one of inboxes) {
      const seen = this.seen.get(one.inbox) ?? { requests: 0, last: 0 };
      const isNew = !first && one.inbox !== chosen && one.last > seen.last;
      if (!isNew) {
        this.seen.set(one.inbox, one);
        continue;
      }
      this.others.push(one);
      pushes += Math.max(1, one.requests - seen.requests); // old requests may have been dropped
    }
    const lost = unmatched.filter((one) => one.time > this.read).length;
    const elsewhere = this.others.length === 1 ? "another inbox" : `${this.others.length} other inboxes`;
    const notices = [
      pushes ? link("inbox", `${plural(pushes, "push", "pushes")} in ${elsewhere}`, () => this.choose(this.others[0].inbox)) : null,
      lost ? link("alert", `${plural(lost, "request")} reached no inbox`, () => this.tell()) : null,
      pushes || lost ? h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", title: "Dismiss", onclick: () => this.dismiss() }, "✕") : null,
    ];
    const key = JSON.stringify([pushes, elsewhere, lost]);
    if (key !== this.shown) fill(this.root, notices); // a redraw would lose the focus
    this.shown = key;
  }

  tell() {
    dialog("Requests that reached no inbox", h("div", { class: "knocked" }, turnedAway(this.unmatched)));
  }

  dismiss() {
    for (const one of this.others) this.seen.set(one.inbox, one);
    this.read = this.unmatched[0]?.time ?? this.read;
    fill(this.root);
    this.shown = null;
  }
}

const link = (name, text, act) => h("button", { type: "button", class: "link", onclick: act }, icon(name), text);

/** The requests that reached no inbox, with the reasons. */
export function turnedAway(requests) {
  const row = (one) =>
    h("li", null, h("span", { class: "code refused" }, one.status), h("span", null, h("span", { class: "mono" }, `${clock(one.time)} `, bdi(`${one.method} ${one.path}`)), h("br"), bdi(one.error)));
  return h("ul", null, requests.map(row));
}
