// The bar at the top: views, inbox, connection, images, theme, help.

import { ALL } from "./api.js";
import { showConnect } from "./connect.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { help } from "./help.js";
import { icon } from "./icons.js";
import { guide, imagesOn, switchImages } from "./links.js";

const VIEWS = [
  ["pushes", "Pushes", "inbox"],
  ["campaigns", "Campaigns", "megaphone"],
  ["users", "Users", "users"],
  ["faults", "Faults", "bolt"],
  ["compose", "Compose", "pen"],
];

export class Top {
  /** @param {{chose: (inbox: string) => void, opened: () => void, named: () => void}} events */
  constructor(events) {
    this.select = h("select", { class: "inbox-select", "aria-label": "Inbox", onchange: () => events.chose(this.select.value) });
    this.select.addEventListener("pointerdown", events.opened);
    this.rename = tool("pen", "Rename", events.named, "Rename this inbox");
    this.rename.hidden = true;
    this.links = VIEWS.map(([key, name, symbol]) => h("a", { href: `#/${key}`, "data-view": key, title: name }, icon(symbol), h("span", null, name)));
    this.state = h("p", { class: "connection", role: "status" });
    this.images = h(
      "button",
      { type: "button", class: "switch images", role: "switch", "aria-label": "Remote images", "aria-checked": String(imagesOn), onclick: switchImages, title: "Load images from the addresses in pushes" },
      h("span", { class: "switch-track", "aria-hidden": "true" }),
      h("span", null, "Images"),
    );
    this.theme = h("button", { type: "button", class: "icon-button tool", onclick: () => this.turn() });
    fill(
      document.getElementById("top"),
      h(
        "h1",
        { class: "brand" },
        h("a", { href: "#/pushes" }, h("img", { src: "icon.svg", alt: "", width: "28", height: "28" }), h("span", null, h("b", null, "pushsdk "), h("small", null, "emulator"))),
      ),
      h("nav", { class: "views", "aria-label": "Views" }, this.links),
      h("div", { class: "inbox-box" }, h("span", { class: "inbox-label", "aria-hidden": "true" }, "Inbox"), this.select, this.rename),
      this.state,
      h("div", { class: "tools" }, this.images, tool("key", "Connect", showConnect), guide("", { class: "icon-button tool guide", title: "Guide: all about the emulator and the SDK" }, icon("book"), h("span", null, "Guide")), this.theme, tool("help", "Help", help)),
    );
    this.connection("connecting");
    this.paint();
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
    fill(this.state, h("span", { class: "lamp", "aria-hidden": "true" }), { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting" }[state]);
  }

  inboxes(list, chosen) {
    // Rebuilt only after a change, because that closes an open list.
    const key = JSON.stringify([list.map((one) => [one.inbox, one.label, one.requests]), chosen]);
    if (key === this.shown) return;
    this.shown = key;
    fill(
      this.select,
      list.length ? null : h("option", { value: "" }, "none yet"),
      list.length > 1 || chosen === ALL ? h("option", { value: ALL, selected: chosen === ALL }, `All inboxes · ${number(list.reduce((sum, one) => sum + one.requests, 0))}`) : null,
      list.map((one) => h("option", { value: one.inbox, selected: one.inbox === chosen }, `${one.label} · ${number(one.requests)}`)),
    );
    this.select.disabled = list.length === 0;
    this.rename.hidden = list.length === 0 || chosen === ALL;
  }

  turn() {
    const now = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = now;
    try {
      localStorage.setItem("theme", now);
    } catch {
      // Without storage the theme lasts until the page is closed.
    }
    this.paint();
  }

  paint() {
    const next = isDark() ? "light" : "dark";
    this.theme.setAttribute("aria-label", `Switch to ${next}`);
    this.theme.title = `Switch to ${next}`;
    fill(this.theme, icon(isDark() ? "sun" : "moon"), h("span", null, next === "dark" ? "Dark" : "Light"));
  }
}

const tool = (name, label, act, title = label) => h("button", { type: "button", class: "icon-button tool", title, onclick: act }, icon(name), h("span", null, label));

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
