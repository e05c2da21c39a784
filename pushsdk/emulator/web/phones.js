// The two phones: the top of each screen, with the notification on it.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { androidCard } from "./android.js";
import { iosCard } from "./ios.js";
import { direction } from "./format.js";
import { enabled, isSilent } from "./message.js";

const NAMES = { ios: "iPhone", android: "Android" };
const clockOf = (shown) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }).format(new Date(shown.time * 1000));

/**
 * A phone with this push on its screen.
 * @param {"ios" | "android"} platform
 * @param {import("./card.js").Shown} shown
 * @param {{expanded: boolean, open: () => void}} options
 */
export function phone(platform, shown, options) {
  const view = options.expanded ? "expanded" : "lock screen";
  return h(
    "div",
    { class: `phone phone-paint ${platform} ${options.expanded ? "expanded" : "locked"}`, role: "group", "aria-label": `${NAMES[platform]}, ${view}`, dir: direction(shown.language) },
    h("p", { class: "phone-head", dir: "ltr" }, h("b", null, NAMES[platform]), h("span", null, clockOf(shown))),
    content(platform, shown, options),
  );
}

function content(platform, shown, options) {
  const { message } = shown;
  const flag = `${platform}Enabled`;
  if (!enabled(message, platform)) return note("alert", `Not sent: ${flag} is ${Object.hasOwn(message.raw, flag) ? "false" : "not set"}.`);
  if (isSilent(message)) return note("wave", "A background push: the app is woken, nothing is shown.");
  return platform === "ios" ? iosCard(shown, options) : androidCard(shown, options);
}

const note = (name, text) => h("p", { class: "silent-push" }, icon(name), text);

/** An explanation instead of the phones if the message is for no platform, else null. */
export function unsent(message) {
  if (enabled(message, "ios") || enabled(message, "android")) return null;
  return h("div", { class: "nothing" }, icon("alert"), h("h2", null, "For no platform"), h("p", null, "Neither iosEnabled nor androidEnabled is true: no phone shows this push."));
}
