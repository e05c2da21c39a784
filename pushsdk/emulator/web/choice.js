// The question for an inbox, in views that show one inbox only while all of them are chosen.

import { bdi, fill, h } from "./dom.js";
import { plural } from "./format.js";
import { icon } from "./icons.js";

export class Choice {
  /** @param {(inbox: string) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.root = h("div", { class: "view page", hidden: true });
  }

  /** @param {string | null} view the view that needs one inbox @param {{inbox: string, label: string, requests: number}[]} inboxes */
  show(view, inboxes) {
    this.root.hidden = view === null;
    if (view === null) return;
    const one = ({ inbox, label, requests }) =>
      h("li", null, h("button", { type: "button", class: "choice", onclick: () => this.choose(inbox) }, icon("inbox"), h("b", null, bdi(label)), h("span", { class: "quiet" }, plural(requests, "request"))));
    fill(
      this.root,
      h("div", { class: "nothing" }, h("h2", null, `${view.charAt(0).toUpperCase()}${view.slice(1)} belong to an inbox`), h("p", null, "Choose the inbox to show."), h("ul", { class: "choices" }, inboxes.map(one))),
    );
  }
}
