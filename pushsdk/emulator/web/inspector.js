// The details of the chosen push: placeholders, fields, users, code.

import { bdi, clipped, copy, h, simulated } from "./dom.js";
import { clock, duration, number, plain } from "./format.js";
import { icon } from "./icons.js";
import { colored, parsed } from "./editor.js";
import { buttons, isObject, texts } from "./message.js";
import { names } from "./placeholders.js";
import { followable, link } from "./links.js";
import { facts, tabs } from "./widgets.js";

// The texts are on the phones, the others have sections of their own.
const ELSEWHERE = new Set(["title", "subtitle", "body", "iosEnabled", "androidEnabled", "androidActionButtons", "actionCategory", "keyVals"]);

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
  return [campaign(request), placeholders(message, values, edited), fields(request, message), actions(message), data(request, message)];
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

/** The name, schedule and segment of a campaign. */
function campaign({ endpoint, body }) {
  if (endpoint !== "campaigns") return null;
  const parts = [body.schedule, body.segment].filter(isObject).flatMap((part) => Object.entries(part).slice(0, 20));
  const rows = [["name", body.name], ["externalId", body.externalId], ...parts].filter(([, value]) => value !== undefined);
  return h(
    "section",
    null,
    h("h3", null, "Campaign"),
    h("p", { class: "hint" }, "Stored, not run: the interface defines neither the query's language nor its tables."),
    facts(rows.map(([name, value]) => [bdi(name.slice(0, 80), "mono"), h("span", { class: "mono" }, clipped(plain(value), 600, name.slice(0, 80)))])),
  );
}

/** Every field of the message that has no place of its own. */
function fields(request, message) {
  const { raw } = message;
  const value = (name) => {
    if (name === "ttl") return lifetime(raw.ttl, request.time);
    return followable(raw[name]) ? link(raw[name]) : h("span", { class: "mono" }, clipped(plain(raw[name]), 240, name.slice(0, 80)));
  };
  const rest = Object.keys(raw).filter((name) => !ELSEWHERE.has(name)).slice(0, 100);
  return h("section", null, h("h3", null, "Fields"), facts([["Platforms", ["ios", "android"].map((one) => platform(raw, one))], ...rest.map((name) => [bdi(name.slice(0, 80), "mono"), value(name)])]));
}

function platform(raw, one) {
  const flag = raw[`${one}Enabled`];
  const word = flag === true ? "on" : flag === false ? "off" : "not set";
  return h("span", { class: `tag ${flag === true ? "" : "off"}` }, `${one === "ios" ? "iPhone" : "Android"} ${word}`);
}

function lifetime(ttl, time) {
  const why = "The interface does not show the unit of ttl; here it is seconds.";
  const until = Number.isFinite(ttl) ? ` (${duration(ttl)}, until ${clock(time + ttl)}) ` : " ";
  return [h("span", { class: "mono" }, clipped(plain(ttl), 80, "ttl")), until, simulated(why)];
}

function actions(message) {
  const rows = ["ios", "android"].flatMap((one) =>
    buttons(message, one).slice(0, 8).map((button) => [
      one === "ios" ? "iPhone action" : "Android button",
      [
        h("b", null, bdi(button.label.slice(0, 80))),
        " ",
        button.url ? link(button.url) : h("span", { class: "quiet" }, "opens the app"),
        button.clickAction ? h("span", { class: "tag" }, bdi(button.clickAction.slice(0, 40))) : null,
        button.webview ? h("span", { class: "tag" }, "web view") : null,
      ],
    ]),
  );
  const { name } = isObject(message.raw.actionCategory) ? message.raw.actionCategory : {};
  if (name !== undefined) rows.unshift(["iPhone category", bdi(plain(name).slice(0, 120), "mono")]);
  return rows.length ? h("section", null, h("h3", null, "Buttons"), facts(rows)) : null;
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
  return request.curl ? snippet("curl", request.curl) : h("p", { class: "nothing" }, "No command: the body is too long, or not JSON.");
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
  const { value } = parsed(request.text);
  const whole = value ? JSON.stringify(value, null, 2) : request.text;
  return [
    h("div", { class: "row end" }, h("span", { class: "quiet" }, `${number(request.text.length)} characters`), h("button", { type: "button", class: "button small", onclick: () => copy(request.text, "JSON") }, icon("copy"), "Copy JSON")),
    h("pre", { class: "full json", tabindex: "0", dir: "auto", role: "region", "aria-label": "Body" }, whole ? colored(whole.slice(0, 40_000)) : "(nothing)"),
  ];
}
