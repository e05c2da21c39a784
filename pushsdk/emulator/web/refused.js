// The requests that reached no inbox: a row above the list, and a page that explains them.

import { bdi, fill, h } from "./dom.js";
import { clock, plural } from "./format.js";
import { icon } from "./icons.js";
import { connect } from "./connect.js";

/** What to change, by status; the server's error text says what was wrong. */
const FIXES = {
  401: "Send the header Api-Key. Any text is a key, and each key has its own inbox.",
  404: "base_url is probably wrong: it ends before /v1.",
  405: "Use POST.",
  413: "Send fewer users per request, or a smaller message.",
  415: "Send the header Content-Type: application/json.",
};

export class Refused {
  constructor() {
    /** @type {{time: number, method: string, path: string, status: number, error: string}[]} newest first */
    this.requests = [];
    this.hidden = 0; // time of the newest request that was hidden
    this.row = h("a", { class: "refused-row", href: "#/pushes/refused", hidden: true });
    this.list = h("ul", { class: "refused-list" });
    this.hide = h("button", { type: "button", class: "button", onclick: () => this.dismiss() }, "Hide them");
  }

  show(requests) {
    this.requests = requests.filter((one) => one.time > this.hidden);
    const key = JSON.stringify(this.requests);
    if (key === this.shown) return;
    this.shown = key;
    const [newest] = this.requests;
    this.row.hidden = !newest;
    if (newest)
      fill(
        this.row,
        h("span", { class: "code refused" }, newest.status),
        h("span", { class: "row-main" }, h("b", { class: "row-title" }, `${plural(this.requests.length, "request")} reached no inbox`), h("span", { class: "row-body" }, bdi(newest.error))),
        h("time", { class: "mono" }, clock(newest.time)),
      );
    fill(this.list, this.requests.map(entry));
  }

  /** The explanation, beside the list. @param {(page: Node) => Node} back */
  open(back) {
    this.row.setAttribute("aria-current", "true");
    return h(
      "div",
      { class: "refused-page" },
      h(
        "header",
        { class: "detail-head" },
        back,
        h("div", { class: "detail-titles" }, h("p", { class: "eyebrow" }, "Refused before an inbox was known"), h("h2", null, "Requests that reached no inbox")),
        this.hide,
      ),
      h("div", { class: "columns" }, h("section", { class: "block" }, h("h3", null, "What came, and what to change"), this.list), h("section", { class: "block" }, h("h3", null, "This emulator expects"), connect())),
    );
  }

  close() {
    this.row.removeAttribute("aria-current");
  }

  dismiss() {
    this.hidden = this.requests[0]?.time ?? this.hidden;
    this.show([]);
    location.hash = "#/pushes";
  }
}

function entry(one) {
  return h(
    "li",
    null,
    h("span", { class: "code refused" }, one.status),
    h(
      "div",
      null,
      h("p", null, bdi(one.error)),
      h("p", { class: "mono quiet" }, `${clock(one.time)} `, bdi(`${one.method} ${one.path}`)),
      FIXES[one.status] ? h("p", { class: "fix" }, icon("chevron"), FIXES[one.status]) : null,
    ),
  );
}
