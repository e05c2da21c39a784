// A user's devices: the notifications that an iPhone and an Android phone show now, and the hidden ones.

import { bdi, h, simulated } from "./dom.js";
import { androidCard } from "./android.js";
import { clock, direction } from "./format.js";
import { icon } from "./icons.js";
import { iosCard } from "./ios.js";
import { readMessage } from "./message.js";

const MOST = 8; // cards of one phone before "more"
const NAMES = { ios: "iPhone", android: "Android" };
const STATES = { enqueued: "on its way", delivered: "shown", replaced: "replaced", expired: "expired" };

/** @param {{devices?: Record<string, object[]>}} user the answer of /users/{id} */
export function stacks(user) {
  const why = "What a device shows is not in the interface. Here a later push with the same collapseId replaces an earlier one, and ttl counts in seconds.";
  return h(
    "section",
    { class: "block" },
    h("h3", null, "Devices now ", simulated(why)),
    h("div", { class: "devices" }, Object.keys(NAMES).map((platform) => device(platform, user.devices?.[platform] ?? []))),
  );
}

function device(platform, notifications) {
  const newest = [...notifications].reverse();
  const shown = newest.filter((one) => one.state === "delivered" && !one.silent);
  const others = newest.filter((one) => one.state !== "delivered" || one.silent);
  return h(
    "div",
    { class: "tray-box" },
    h("h4", null, icon(platform === "ios" ? "apple" : "android"), NAMES[platform], h("span", { class: "count" }, String(shown.length))),
    h(
      "ul",
      { class: `tray phone-paint ${platform}` },
      shown.length ? null : h("li", { class: "tray-empty" }, "Nothing on this screen"),
      items(platform, shown),
    ),
    others.length
      ? h(
          "details",
          { class: "gone", open: true },
          h("summary", null, `Not on the screen (${others.length})`),
          h("ul", { class: `tray ghosts phone-paint ${platform}` }, items(platform, others)),
        )
      : null,
  );
}

function items(platform, list) {
  const rest = list.slice(MOST);
  const more = h("button", { type: "button", class: "button small" }, `${rest.length} more`);
  const place = h("li", { class: "row center" }, more);
  more.addEventListener("click", () => place.replaceWith(...rest.slice(0, 200).map((one) => item(platform, one))));
  return [...list.slice(0, MOST).map((one) => item(platform, one)), rest.length ? place : null];
}

function item(platform, one) {
  const message = readMessage(one);
  const language = message.languages.find((name) => /^en\b/.test(name)) ?? message.languages[0] ?? "en";
  const shown = { message, language, values: one.fields ?? {}, time: one.time };
  const draw = platform === "ios" ? iosCard : androidCard;
  const state = one.silent ? "background" : (STATES[one.state] ?? String(one.state));
  return h(
    "li",
    { class: `note ${one.state}`, dir: direction(language) },
    h(
      "p",
      { class: "tray-note", dir: "ltr" },
      h("a", { href: `#/pushes/${Number(one.push)}` }, `Push ${one.push}`),
      ` · ${clock(one.time)}`,
      state === "shown" ? null : h("b", { class: "tag" }, state),
      one.message.collapseId ? h("span", { class: "tag", title: "collapseId" }, bdi(one.message.collapseId.slice(0, 60))) : null,
      Number.isInteger(one.message.ttl) && one.state === "delivered" ? h("span", null, `until ${clock(one.time + one.message.ttl)}`) : null,
    ),
    one.silent ? h("p", { class: "silent-push" }, icon("wave"), "Wakes the app, shows nothing") : draw(shown, { expanded: false, open: null }),
    one.simulated?.length ? h("p", { class: "tray-sim", title: one.simulated.join("\n") }, `simulated: ${one.simulated.length}`) : null,
  );
}
