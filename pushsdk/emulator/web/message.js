// A message of any form, even a hostile or broken one, as values that can be shown. Pure.

import { plain } from "./format.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const TEXTS = ["title", "subtitle", "body"];

/**
 * @typedef {object} Message
 * @property {Record<string, unknown>} raw the unchanged fields
 * @property {string[]} languages of all texts, in their order
 */

/** @param {unknown} body a push or a campaign request @returns {Message} */
export function readMessage(body) {
  const raw = isObject(body) && isObject(body.message) ? body.message : {};
  const languages = new Set();
  for (const name of TEXTS) if (isObject(raw[name])) for (const language of Object.keys(raw[name])) languages.add(language);
  return { raw, languages: [...languages] };
}

/** The text of a field in a language, or "". */
export function textOf(message, field, language) {
  const texts = message.raw[field];
  if (!isObject(texts) || !Object.hasOwn(texts, language)) return "";
  const text = texts[language];
  return plain(text);
}

/** Every text of the message. */
export function texts(message) {
  return TEXTS.flatMap((name) => (isObject(message.raw[name]) ? Object.values(message.raw[name]) : [])).filter(
    (text) => typeof text === "string",
  );
}

/** A text field; "" if it is unset or not a text. */
export const text = (message, field) => (typeof message.raw[field] === "string" ? message.raw[field] : "");

/** True if the message goes to a platform; a missing flag is false, as on the server. */
export const enabled = (message, platform) => message.raw[`${platform}Enabled`] === true;

/** The large and the small image of a platform, as the emulator interprets the fields. */
export function images(message, platform) {
  const rich = text(message, "mediaType") === "IMAGE" || text(message, "mediaType") === "" ? text(message, "richMediaUrl") : "";
  const big = text(message, "bigImageUrl");
  if (platform === "ios") return { large: rich || big, small: rich || big };
  return { large: big || rich, small: text(message, "largeIconUrl") };
}

/** @typedef {{label: string, url: string, clickAction: string, raw: object, webview?: boolean}} Button */

/** The buttons of a platform: Android's own, or those of the action category for iOS. @returns {Button[]} */
export function buttons(message, platform) {
  const category = message.raw.actionCategory;
  const list = platform === "android" ? message.raw.androidActionButtons : isObject(category) ? category.actionComponents : [];
  return (Array.isArray(list) ? list : []).filter(isObject).map((raw) => ({
    label: plain(platform === "android" ? raw.label : raw.actionId) || "(no label)",
    url: plain(raw.url),
    clickAction: plain(raw.clickAction),
    webview: raw.useWebview === true,
    raw,
  }));
}

/** True for a background push, which shows nothing. */
export const isSilent = (message) => message.raw.contentAvailable === true && texts(message).every((one) => one === "");

/** The loudness from 0 (silent) to 3; the interface shows no values beside PASSIVE and NORMAL. */
export function loudness(message, platform) {
  if (platform === "ios") {
    const level = text(message, "interruptionLevel").toUpperCase().replaceAll("-", "_");
    return { PASSIVE: 0, ACTIVE: 1, TIME_SENSITIVE: 2, CRITICAL: 3 }[level] ?? 1;
  }
  return { MIN: 0, LOW: 0, NORMAL: 1, DEFAULT: 1, HIGH: 2, MAX: 2 }[text(message, "priority").toUpperCase()] ?? 1;
}

/** The number of the badge, or null. */
export const badge = (message) => (Number.isInteger(message.raw.badgeCount) ? message.raw.badgeCount : null);

export { isObject };
