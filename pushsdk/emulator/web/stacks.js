// A user's devices: the notifications that an iPhone and an Android phone show now, and those that they no longer do.

import { h, simulated } from "./dom.js";
import { androidCard } from "./android.js";
import { clock, direction } from "./format.js";
import { iosCard } from "./ios.js";
import { readMessage } from "./message.js";
import { icon } from "./icons.js";

const MOST = 40; // cards of one phone

/**
 * @param {object} user the answer of /users/{id}
 * @param {(push: number) => object | undefined} pushOf
 */
export function stacks(user, pushOf) {
  const devices = user.devices ?? {};
  return h(
    "section",
    { class: "block" },
    h("h3", null, "Devices now ", simulated("When a notification replaces another or expires is not in the interface: collapseId replaces, ttl counts in seconds.")),
    h("div", { class: "devices" }, device("ios", devices.ios ?? [], pushOf), device("android", devices.android ?? [], pushOf)),
  );
}

function device(platform, notifications, pushOf) {
  const shown = notifications.filter((one) => stateOf(one) === "shown");
  const gone = notifications.filter((one) => stateOf(one) !== "shown");
  return h(
    "div",
    { class: "tray-box" },
    h("h4", null, icon(platform === "ios" ? "apple" : "android"), platform === "ios" ? "iPhone" : "Android", h("span", { class: "count" }, String(shown.length))),
    h(
      "ul",
      { class: `tray phone-paint ${platform}` },
      shown.length ? null : h("li", { class: "tray-empty" }, "Nothing on this screen"),
      shown.slice(0, MOST).map((one) => item(platform, one, pushOf)),
    ),
    gone.length
      ? h(
          "details",
          { class: "gone", open: true },
          h("summary", null, `No longer shown (${gone.length})`),
          h("ul", { class: `tray ghosts phone-paint ${platform}` }, gone.slice(0, MOST).map((one) => item(platform, one, pushOf))),
        )
      : null,
  );
}

const stateOf = (one) => one.state ?? (one.replaced_by ? "replaced" : one.expired ? "expired" : "shown");

function item(platform, one, pushOf) {
  const id = one.push ?? one.push_id ?? one.request ?? one.id;
  const state = stateOf(one);
  const message = messageOf(one, pushOf(id));
  const language = one.language ?? message.languages.find((name) => /^en\b/.test(name)) ?? message.languages[0] ?? "en";
  const shown = { message, language, values: one.values ?? pushOf(id)?.custom_fields ?? {}, time: one.time };
  const draw = platform === "ios" ? iosCard : androidCard;
  return h(
    "li",
    { class: state, dir: direction(language) },
    h(
      "p",
      { class: "tray-note", dir: "ltr" },
      h("a", { href: `#/pushes/${Number(id)}` }, `Push ${id}`),
      ` · ${clock(one.time)}`,
      state === "shown" ? null : h("b", { class: "tag" }, says(one, state)),
      typeof one.expires === "number" && state === "shown" ? ` · until ${clock(one.expires)}` : null,
    ),
    draw(shown, { expanded: false, open: null }),
  );
}

function says(one, state) {
  return state === "replaced" && one.replaced_by ? `replaced by ${one.replaced_by}` : state;
}

// The server rendered the texts; the rest of the picture is in the push itself.
function messageOf(one, push) {
  const message = readMessage(push ?? {});
  if (message.languages.length) return message;
  const language = one.language ?? "en";
  const texts = Object.fromEntries(["title", "subtitle", "body"].filter((name) => one[name]).map((name) => [name, { [language]: one[name] }]));
  return readMessage({ message: texts });
}
