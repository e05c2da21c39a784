// A notification as iOS shows it: small on the lock screen, large with its actions when held.

import { bdi, h } from "./dom.js";
import { badge, buttons, images, loudness } from "./message.js";
import { picture } from "./links.js";
import { APP, appIcon, pressable, words } from "./card.js";

const LABELS = { 2: "Time Sensitive", 3: "Critical Alert" };

/** @param {import("./card.js").Shown} shown */
export function iosCard(shown, { expanded, open }) {
  return expanded ? large(shown) : small(shown, open);
}

function head(shown, when) {
  const level = LABELS[loudness(shown.message, "ios")];
  return h(
    "span",
    { class: "card-head" },
    h("span", { class: "card-app" }, level ? h("b", { class: "level" }, level) : APP),
    h("time", null, when),
  );
}

function lines(shown) {
  return [words(shown, "title", "card-title"), words(shown, "subtitle", "card-subtitle"), words(shown, "body", "card-body")];
}

function small(shown, open) {
  const { small: url } = images(shown.message, "ios");
  const card = h(
    "div",
    { class: "card ios-card" },
    appIcon(badge(shown.message)),
    h("div", { class: "card-text" }, head(shown, "now"), lines(shown)),
    url ? picture(url, "thumb", "Attached image") : null,
  );
  return pressable(card, open, "Show the iPhone notification expanded");
}

function large(shown) {
  const { large: url } = images(shown.message, "ios");
  const actions = buttons(shown.message, "ios");
  return h(
    "div",
    { class: "ios-large" },
    h(
      "div",
      { class: "card ios-card" },
      url ? picture(url, "hero", "Attached image") : null,
      h("div", { class: "card-row" }, appIcon(badge(shown.message)), h("div", { class: "card-text" }, head(shown, "now"), lines(shown))),
    ),
    actions.length ? h("ul", { class: "ios-actions" }, actions.slice(0, 8).map(action)) : null,
  );
}

function action(button) {
  return h(
    "li",
    { title: button.url.slice(0, 500) },
    bdi(button.label.slice(0, 120)),
    button.webview ? h("span", { class: "opens" }, "web view") : null,
  );
}
