// The bar at the top: views, inbox, connection, help.

import { ALL } from "./api.js";
import { showConnect } from "./connect.js";
import { fill, h } from "./dom.js";
import { help } from "./help.js";
import { icon } from "./icons.js";
import { guide } from "./links.js";

const VIEWS = [
  ["pushes", "Pushes", "inbox"],
  ["users", "Users", "users"],
  ["faults", "Faults", "bolt"],
  ["compose", "Compose", "pen"],
];

export class Top {
  /** @param {{chose: (inbox: string) => void, opened: () => void, named: () => void}} events */
  constructor(events) {
    this.select = h("select", { class: "inbox-select", "aria-label": "Inbox", onchange: () => events.chose(this.select.value) });
    this.select.addEventListener("pointerdown", events.opened);
    this.rename = h("button", { type: "button", class: "icon-button", title: "Rename this inbox", "aria-label": "Rename", onclick: events.named }, icon("pen"));
    this.rename.hidden = true;
    this.links = VIEWS.map(([key, name, symbol]) => h("a", { href: `#/${key}`, "data-view": key }, icon(symbol), h("span", null, name)));
    this.state = h("p", { class: "connection", role: "status" });
    this.active = h("b", { class: "badge", hidden: true });
    this.links.find((one) => one.dataset.view === "faults").append(this.active);
    fill(
      document.getElementById("top"),
      h(
        "h1",
        { class: "brand" },
        h("a", { href: "#/pushes" }, h("img", { src: "icon.svg", alt: "", width: "28", height: "28" }), h("span", null, h("b", null, "pushsdk "), h("small", null, "emulator"))),
      ),
      h("nav", { class: "views", "aria-label": "Views" }, this.links),
      h("div", { class: "inbox-box" }, this.select, this.rename),
      this.state,
      h("div", { class: "tools" }, tool("key", "Connect", showConnect), guide("", { class: "icon-button tool guide" }, icon("book"), h("span", null, "Guide")), tool("help", "Help", help)),
    );
    this.connection("connecting");
  }

  view(key) {
    for (const one of this.links) {
      if (one.dataset.view === key) one.setAttribute("aria-current", "page");
      else one.removeAttribute("aria-current");
    }
  }

  /** @param {"connecting" | "live" | "reconnecting"} state */
  connection(state) {
    this.state.dataset.state = state;
    fill(this.state, h("span", { class: "lamp", "aria-hidden": "true" }), h("span", null, { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting" }[state]));
  }

  inboxes(list, chosen) {
    const faults = Math.max(0, ...list.filter((one) => chosen === ALL || one.inbox === chosen).map((one) => one.faults));
    this.active.hidden = faults === 0;
    if (faults) fill(this.active, h("span", { class: "visually-hidden" }, ": "), faults, h("span", { class: "visually-hidden" }, ` ${faults === 1 ? "rule" : "rules"} on`));
    // Rebuilt only after a change, because that closes an open list.
    const key = JSON.stringify([list.map((one) => [one.inbox, one.label]), chosen]);
    if (key === this.shown) return;
    this.shown = key;
    fill(
      this.select,
      list.length > 1 || chosen === ALL ? h("option", { value: ALL, selected: chosen === ALL }, "All inboxes") : null,
      list.map((one) => h("option", { value: one.inbox, selected: one.inbox === chosen }, one.label.length > 24 ? `${one.label.slice(0, 23)}…` : one.label)),
    );
    this.rename.hidden = chosen === ALL;
  }
}

const tool = (name, label, act) => h("button", { type: "button", class: "icon-button tool", onclick: act }, icon(name), h("span", null, label));
