// The details of the chosen push: placeholders, facts, fields, users, code.

import { bdi, clipped, copy, h, simulated } from "./dom.js";
import { fieldsTable } from "./fields.js";
import { clock, duration, number, plain } from "./format.js";
import { icon } from "./icons.js";
import { tree } from "./json.js";
import { buttons, isObject, text, texts } from "./message.js";
import { names } from "./placeholders.js";
import { link } from "./links.js";
import { facts, tabs } from "./widgets.js";

/**
 * @param {{request: object, message: import("./message.js").Message, values: Record<string, string>, tab: string,
 *   switched: (tab: string) => void, edited: () => void}} options
 */
export function inspector({ request, message, values, tab, switched, edited }) {
  const users = request.user_ids ?? [];
  return h(
    "aside",
    { class: "inspector", "aria-label": "About this push" },
    tabs(
      "About this push",
      [
        ["overview", "Overview", () => overview(request, message, values, edited)],
        ["fields", "All fields", () => [fieldsTable(request.body)]],
        ...(request.endpoint === "campaigns" ? [] : [["users", ["Users ", h("span", { class: "count" }, number(request.users))], () => recipients(request, users)]]),
        ["code", "Code", () => code(request)],
        ["raw", "Raw", () => raw(request)],
      ],
      tab,
      switched,
    ),
  );
}

function overview(request, message, values, edited) {
  if (!isObject(request.body)) return [h("p", { class: "hint" }, "The body holds no fields that can be shown here: see Raw.")];
  return [placeholders(message, values, edited), arrival(request, message), taps(message), data(request, message)];
}

function placeholders(message, values, edited) {
  const found = names(texts(message));
  if (!found.size) return null;
  const input = (name, fallbacks) => {
    const box = h("input", { type: "text", value: values[name] ?? "", placeholder: [...fallbacks].join(" / ").slice(0, 200), dir: "auto", autocomplete: "off" });
    box.addEventListener("input", () => {
      if (box.value === "") delete values[name];
      else values[name] = box.value;
      edited();
    });
    return h("label", { class: "field" }, bdi(name.slice(0, 80), "mono"), box);
  };
  return h(
    "section",
    null,
    h("h3", null, "Placeholders"),
    h("p", { class: "hint" }, "Empty shows the ", h("span", { class: "ph fallback" }, "fallback"), ", filled in the ", h("span", { class: "ph value" }, "value"), "."),
    [...found].slice(0, 30).map(([name, fallbacks]) => input(name, fallbacks)),
  );
}

function arrival(request, message) {
  const { raw } = message;
  const set = (name) => (Object.hasOwn(raw, name) ? h("span", { class: "mono" }, clipped(plain(raw[name]), 120, name)) : null);
  const guess = (name, why) => (set(name) ? [set(name), " ", simulated(why)] : null);
  return h(
    "section",
    null,
    h("h3", null, "How it arrives"),
    facts([
      ["Platforms", ["ios", "android"].map((one) => platform(raw, one))],
      ["Interruption level", guess("interruptionLevel", "Only PASSIVE is shown in the interface; the effect of a level is that of iOS.")],
      ["Priority", guess("priority", "Only NORMAL is shown in the interface; the effect of a priority is that of Android.")],
      ["Relevance score", set("relevanceScore")],
      ["Android channel", set("androidChannel")],
      ["Sound", set("soundFileName")],
      ["Badge", set("badgeCount")],
      ["Small icon", set("smallIconResourceId")],
      ["Media type", set("mediaType")],
      ["Collapse id", set("collapseId")],
      ["Time to live", lifetime(raw, request.time)],
      ["Content available", set("contentAvailable")],
    ]),
  );
}

function platform(raw, one) {
  const flag = raw[`${one}Enabled`];
  const word = flag === true ? "on" : flag === false ? "off" : "not set";
  return h("span", { class: `tag ${flag === true ? "" : "off"}` }, icon(one === "ios" ? "apple" : "android"), `${one === "ios" ? "iPhone" : "Android"} ${word}`);
}

function lifetime(raw, time) {
  if (!Object.hasOwn(raw, "ttl")) return null;
  const why = "The interface does not show the unit of ttl; here it is seconds.";
  if (!Number.isFinite(raw.ttl)) return [plain(raw.ttl), " ", simulated(why)];
  return [h("span", { class: "mono" }, String(raw.ttl)), ` (${duration(raw.ttl)}, until ${clock(time + raw.ttl)}) `, simulated(why)];
}

function taps(message) {
  const action = (button) => [
    h("b", null, bdi(button.label.slice(0, 80))),
    " ",
    button.url ? link(button.url) : h("span", { class: "quiet" }, "opens the app"),
    button.clickAction ? h("span", { class: "tag" }, bdi(button.clickAction.slice(0, 40))) : null,
    button.webview ? h("span", { class: "tag" }, "web view") : null,
  ];
  const address = (field) => (text(message, field) ? link(text(message, field)) : null);
  const category = isObject(message.raw.actionCategory) ? message.raw.actionCategory : {};
  const rows = [
    ["Tap on iPhone", address("iosActionUrl")],
    ["Tap on Android", address("androidActionUrl")],
    ["Action", text(message, "action") ? bdi(text(message, "action").slice(0, 80), "mono") : null],
    ["Category", category.name ? bdi(plain(category.name).slice(0, 120), "mono") : null],
    ...buttons(message, "ios").slice(0, 8).map((button) => ["iPhone action", action(button)]),
    ...buttons(message, "android").slice(0, 8).map((button) => ["Android button", action(button)]),
    ["Large image", address("bigImageUrl")],
    ["Rich media", address("richMediaUrl")],
    ["Large icon", address("largeIconUrl")],
  ].filter(([, value]) => value !== null);
  return rows.length ? h("section", null, h("h3", null, "What it opens and loads"), facts(rows)) : null;
}

function data(request, message) {
  const given = [["keyVals", message.raw.keyVals], ["customFields", request.body?.customFields]].filter(([, value]) => isObject(value) && Object.keys(value).length);
  if (!given.length) return null;
  return h(
    "section",
    null,
    h("h3", null, "Data for the app"),
    given.map(([name, value]) => [
      h("h4", { class: "mono" }, name),
      facts(Object.entries(value).slice(0, 60).map(([key, one]) => [bdi(key.slice(0, 80), "mono"), clipped(plain(one), 200, key.slice(0, 80))])),
    ]),
  );
}

function recipients(request, users) {
  if (!users.length) return [h("p", { class: "nothing" }, "No users in this request.")];
  const more = request.users - users.length;
  return [
    h("p", { class: "hint" }, "Who the request names; open one to see all it got."),
    h("ul", { class: "names" }, users.map((user) => h("li", null, h("a", { href: `#/users/${encodeURIComponent(user)}` }, bdi(user.slice(0, 200)))))),
    more > 0 ? h("p", { class: "hint" }, `and ${number(more)} more`) : null,
  ];
}

function code(request) {
  return [["curl", request.curl], ["Python", request.python]].filter(([, source]) => source).map(([name, source]) => snippet(name, source));
}

/** Source with a button that copies it. */
export function snippet(name, source) {
  return h(
    "figure",
    { class: "snippet" },
    h("figcaption", null, name, h("button", { type: "button", class: "button small", "aria-label": `Copy ${name}`, onclick: () => copy(source, name) }, icon("copy"), "Copy")),
    h("pre", { tabindex: "0", role: "region", "aria-label": name }, source.length > 20_000 ? `${source.slice(0, 20_000)}…` : source),
  );
}

function raw(request) {
  const whole = request.text ?? "";
  const copyAll = h("button", { type: "button", class: "button small", onclick: () => copy(whole, "JSON") }, icon("copy"), "Copy JSON");
  return [
    h("div", { class: "row end" }, h("span", { class: "quiet" }, `${number(whole.length)} characters`), copyAll),
    request.body === null || request.body === undefined
      ? h("pre", { class: "full", tabindex: "0", dir: "auto", role: "region", "aria-label": "Body as it came" }, (request.text ?? "").slice(0, 20_000) || "(nothing)")
      : tree(request.body),
  ];
}
