// A notification on Android: one line and a picture at the side; expanded, with large image and buttons.

import { bdi, h } from "./dom.js";
import { icon } from "./icons.js";
import { badge, buttons, images, loudness, text } from "./message.js";
import { picture } from "./links.js";
import { APP, pressable, words } from "./card.js";

/** @param {import("./card.js").Shown} shown */
export function androidCard(shown, { expanded, open }) {
  const { message } = shown;
  const { large, small } = images(message, "android");
  const card = h(
    "div",
    { class: "card android-card" },
    head(shown, expanded),
    h(
      "div",
      { class: "card-row" },
      h(
        "div",
        { class: "card-text" },
        words(shown, "title", "card-title"),
        expanded ? words(shown, "subtitle", "card-subtitle") : null,
        words(shown, "body", "card-body"),
      ),
      small ? picture(small, "thumb", "Large icon") : null,
      !small && large && !expanded ? picture(large, "thumb", "Large image") : null,
    ),
    expanded && large ? picture(large, "hero", "Large image") : null,
    expanded ? actions(message) : null,
  );
  return expanded ? card : pressable(card, open, "Show the Android notification expanded");
}

function head(shown, expanded) {
  const { message } = shown;
  const resource = text(message, "smallIconResourceId");
  const channel = text(message, "androidChannel");
  const count = badge(message);
  return h(
    "div",
    { class: "card-head" },
    h("span", { class: "small-icon", title: resource ? `small icon: ${resource.slice(0, 200)}` : "small icon" }, resource ? bdi(initial(resource)) : icon("bell")),
    h("span", { class: "card-app" }, APP),
    channel ? h("span", { class: "channel" }, "· ", bdi(channel.slice(0, 60))) : null,
    h("time", null, "· now"),
    loudness(message, "android") > 1 ? h("span", { class: "heads-up", title: "High priority" }, icon("bell")) : null,
    count !== null && count > 0 ? h("span", { class: "count-pill", title: "badgeCount" }, count > 9999 ? "9999+" : String(count)) : null,
    h("span", { class: expanded ? "fold open" : "fold", "aria-hidden": "true" }, icon("chevron")),
  );
}

// The icon is a resource of the app; the first letter of its name is a substitute.
const initial = (resource) => ([...resource.replace(/^(ic_|icon_)/i, "")][0] ?? "?").toUpperCase();

function actions(message) {
  const list = buttons(message, "android");
  if (!list.length) return null;
  return h(
    "ul",
    { class: "android-actions" },
    list.slice(0, 6).map((button) => h("li", { title: button.url.slice(0, 500) }, bdi(button.label.slice(0, 60)))),
  );
}
