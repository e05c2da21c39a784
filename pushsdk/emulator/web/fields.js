// The 'All fields' table: every documented field, its value, and where the page shows it.

import { bdi, clipped, h } from "./dom.js";
import { plain } from "./format.js";
import { followable, link } from "./links.js";
import { isObject } from "./message.js";

const MESSAGE = [
  ["type", "what kind of message"],
  ["iosEnabled", "iPhone on or off"],
  ["androidEnabled", "Android on or off"],
  ["title", "first line"],
  ["subtitle", "second line"],
  ["body", "text"],
  ["collapseId", "replaces the notification with the same id"],
  ["ttl", "when it expires"],
  ["action", "what a tap does"],
  ["androidActionUrl", "what a tap opens, Android"],
  ["iosActionUrl", "what a tap opens, iPhone"],
  ["keyVals", "data for the app"],
  ["bigImageUrl", "large image, Android"],
  ["largeIconUrl", "picture at the side, Android"],
  ["smallIconResourceId", "icon in the head, Android"],
  ["androidChannel", "channel, in the head on Android"],
  ["priority", "how it arrives on Android"],
  ["androidActionButtons", "buttons, Android"],
  ["soundFileName", "sound, under the phones"],
  ["richMediaUrl", "large image, iPhone"],
  ["mediaType", "what the rich media is"],
  ["interruptionLevel", "how it arrives on iPhone"],
  ["badgeCount", "number at the app's icon"],
  ["relevanceScore", "rank among other notifications, iPhone"],
  ["contentAvailable", "wakes the app"],
  ["actionCategory", "actions, iPhone"],
];
const BUTTON = [
  ["label", "on the button"],
  ["url", "what the button opens"],
  ["clickAction", "how it opens"],
  ["keyVals", "data for the app"],
];
const CATEGORY = [
  ["type", "kind of category"],
  ["name", "which category"],
  ["actionComponents", "the actions"],
];
const COMPONENT = [
  ["actionId", "on the action: no label is defined"],
  ["url", "what the action opens"],
  ["clickAction", "how it opens"],
  ["keyVals", "data for the app"],
  ["useWebview", "in a web view"],
];
const PUSH = [
  ["userIds", "Users"],
  ["message", "the push"],
  ["customFields", "values of placeholders"],
];
const CAMPAIGN = [
  ["name", "title of the campaign"],
  ["externalId", "under the title of the campaign"],
  ["segment", "audience"],
  ["schedule", "start"],
  ["message", "the push"],
];
const SEGMENT = [
  ["query", "run on the audience's tables"],
  ["primaryKey", "column that names the user"],
];
const SCHEDULE = [
  ["type", "when it starts"],
  ["startTs", "when it starts"],
];

/** One group of rows. @typedef {{section: string, title: string, rows: [string, string][], value: object}} Group */

/** @returns {Group[]} */
function groups(body) {
  const campaign = isObject(body.segment) || isObject(body.schedule) || "name" in body;
  const message = isObject(body.message) ? body.message : {};
  const found = campaign
    ? [
        { section: "2.1", title: "Campaign", rows: CAMPAIGN, value: body },
        { section: "2.2", title: "segment", rows: SEGMENT, value: body.segment },
        { section: "2.3", title: "schedule", rows: SCHEDULE, value: body.schedule },
      ]
    : [{ section: "2.9", title: "Push send request", rows: PUSH, value: body }];
  found.push({ section: "2.5", title: "message", rows: MESSAGE, value: message });
  each(message.androidActionButtons, "androidActionButtons", (title, value) =>
    found.push({ section: "2.6", title, rows: BUTTON, value }),
  );
  const category = isObject(message.actionCategory) ? message.actionCategory : null;
  found.push({ section: "2.7", title: "actionCategory", rows: CATEGORY, value: category });
  each(category?.actionComponents, "actionComponents", (title, value) =>
    found.push({ section: "2.8", title, rows: COMPONENT, value }),
  );
  return found;
}

function each(list, name, take) {
  if (!Array.isArray(list)) return;
  list.slice(0, 50).forEach((value, index) => take(`${name}[${index}]`, value));
}

/** @param {unknown} body the request */
export function fieldsTable(body) {
  if (!isObject(body)) return h("p", { class: "nothing" }, "The body is no JSON object: see Raw.");
  return h(
    "div",
    { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "All fields" },
    h(
      "table",
      { class: "fields" },
      h(
        "thead",
        null,
        h("tr", null, h("th", { scope: "col" }, "Field, and what it does here"), h("th", { scope: "col" }, "Value")),
      ),
      groups(body).map(groupRows),
    ),
  );
}

function groupRows({ section, title, rows, value }) {
  const fields = isObject(value) ? value : {};
  const known = new Set(rows.map(([name]) => name));
  const extra = Object.keys(fields).filter((name) => !known.has(name));
  return h(
    "tbody",
    null,
    h("tr", { class: "group" }, h("th", { colspan: "2", scope: "rowgroup" }, title, " ", h("span", { class: "section" }, `§ ${section}`))),
    rows.map(([name, shows]) => row(name, fields, shows)),
    extra.map((name) => row(name, fields, "not in the interface", "extra")),
  );
}

function row(name, fields, shows, kind = "") {
  const there = Object.hasOwn(fields, name);
  return h(
    "tr",
    { class: `${there ? "set" : "unset"} ${kind}` },
    h("th", { scope: "row" }, bdi(name.length > 80 ? `${name.slice(0, 80)}…` : name, "mono"), h("span", { class: "shows" }, shows)),
    h("td", null, there ? cell(fields[name], name) : h("span", { class: "quiet" }, "not set")),
  );
}

function cell(value, name) {
  if (isObject(value)) {
    const keys = Object.keys(value);
    if (!keys.length) return h("span", { class: "quiet mono" }, "{ }");
    if (keys.some((key) => isObject(value[key]) || Array.isArray(value[key]))) return h("span", { class: "quiet" }, `${keys.length} fields`);
    return h(
      "dl",
      { class: "pairs" },
      keys.slice(0, 40).map((key) => h("div", null, h("dt", null, bdi(key.slice(0, 80))), h("dd", null, scalar(value[key], key)))),
    );
  }
  if (Array.isArray(value)) return h("span", { class: "quiet" }, value.length === 1 ? "1 entry" : `${value.length} entries`);
  return scalar(value, name);
}

function scalar(value, name) {
  if (typeof value === "string" && (followable(value) || /^[a-z][\w+.-]*:/i.test(value))) return link(value);
  if (value === "") return h("span", { class: "quiet" }, "empty text");
  return h("span", { class: typeof value === "string" ? "" : "mono" }, clipped(plain(value), 240, name));
}
