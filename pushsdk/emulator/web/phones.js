// The two phones: frames, lock screens, and the notification on them.

import { h, s } from "./dom.js";
import { icon } from "./icons.js";
import { androidCard } from "./android.js";
import { iosCard } from "./ios.js";
import { direction, locale } from "./format.js";
import { enabled, isSilent, loudness } from "./message.js";

const BARS = "M1 9h2v3H1zm4-2h2v5H5zm4-3h2v8H9zm4-3h2v11h-2z";
const WIFI = "M8 11.5 10 9a3 3 0 0 0-4 0l2 2.5Zm-5-5 1.3 1.6a6 6 0 0 1 7.4 0L13 6.5a8 8 0 0 0-10 0ZM.5 3.7 1.7 5.2a10 10 0 0 1 12.6 0l1.2-1.5a12 12 0 0 0-15 0Z";
const glyph = (path, box = "0 0 16 12") => s("svg", { class: "glyph", viewBox: box, "aria-hidden": "true" }, s("path", { d: path }));

function statusBar(left) {
  return h(
    "div",
    { class: "status-bar", "aria-hidden": "true" },
    h("span", null, left),
    h("span", { class: "status-right" }, glyph(BARS), glyph(WIFI), h("span", { class: "battery" })),
  );
}

function moment(shown, options) {
  const language = locale(shown.language) ?? "en";
  const date = new Date(shown.time * 1000);
  try {
    return new Intl.DateTimeFormat([language, "en"], options).format(date);
  } catch {
    return "";
  }
}

const clockOf = (shown) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }).format(new Date(shown.time * 1000));

/**
 * A phone with this push on its screen.
 * @param {"ios" | "android"} platform
 * @param {import("./card.js").Shown} shown
 * @param {{expanded: boolean, open: () => void}} options
 */
export function phone(platform, shown, options) {
  const off = !enabled(shown.message, platform);
  const silent = isSilent(shown.message);
  const quiet = loudness(shown.message, platform) === 0;
  const classes = ["phone", platform, options.expanded ? "expanded" : "locked"];
  if (off) classes.push("off");
  else if (quiet && !options.expanded) classes.push("dim");
  const name = platform === "ios" ? "iPhone" : "Android";
  const screen = h("div", { class: "screen", dir: direction(shown.language) });
  if (off) screen.append(blank("Not sent", `${platform}Enabled is ${Object.hasOwn(shown.message.raw, `${platform}Enabled`) ? "false" : "not set"}`));
  else if (platform === "ios") iosScreen(screen, shown, silent, options);
  else androidScreen(screen, shown, silent, options);
  const node = h("div", { class: "glass" }, screen, h("i", { class: "side-key" }), platform === "ios" ? h("i", { class: "island" }) : h("i", { class: "hole" }));
  return h("div", { class: classes.join(" "), role: "group", "aria-label": `${name}, ${options.expanded ? "expanded" : "lock screen"}` }, node);
}

/** An explanation instead of the phones if the message is for no platform, else null. */
export function unsent(message) {
  if (enabled(message, "ios") || enabled(message, "android")) return null;
  return h("div", { class: "nothing" }, icon("alert"), h("h2", null, "For no platform"), h("p", null, "Neither iosEnabled nor androidEnabled is true: no phone shows this push."));
}

function blank(title, why) {
  return h("div", { class: "blank" }, h("p", null, title), h("p", { class: "mono" }, why));
}

function iosScreen(screen, shown, silent, options) {
  screen.append(
    statusBar(options.expanded ? clockOf(shown) : "Carrier"),
    h(
      "div",
      { class: "clock", "aria-hidden": "true" },
      h("span", { class: "date", dir: "auto" }, moment(shown, { weekday: "long", day: "numeric", month: "long" })),
      h("span", { class: "time" }, clockOf(shown)),
    ),
    h("div", { class: "stack" }, silent ? nothingShown() : iosCard(shown, options)),
    h(
      "div",
      { class: "lock-foot", "aria-hidden": "true" },
      h("span", { class: "round" }, icon("torch")),
      h("span", { class: "home-bar" }),
      h("span", { class: "round" }, icon("camera")),
    ),
  );
}

function androidScreen(screen, shown, silent, options) {
  const [hours, minutes] = clockOf(shown).split(":");
  screen.append(
    statusBar(options.expanded ? clockOf(shown) : "Carrier"),
    options.expanded
      ? h("div", { class: "shade", "aria-hidden": "true" }, ["wave", "moon", "torch", "sound"].map((name) => h("span", null, icon(name))))
      : h(
          "div",
          { class: "clock", "aria-hidden": "true" },
          h("span", { class: "time" }, hours, h("br"), minutes),
          h("span", { class: "date", dir: "auto" }, moment(shown, { weekday: "short", day: "numeric", month: "short" })),
        ),
    h("div", { class: "stack" }, silent ? nothingShown() : androidCard(shown, options)),
    h("div", { class: "nav-bar", "aria-hidden": "true" }),
  );
}

function nothingShown() {
  return h("p", { class: "silent-push" }, icon("wave"), "A background push: the app is woken, nothing is shown.");
}
