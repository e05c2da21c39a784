// Parts of both kinds of notification: the app's icon, and texts with their placeholders filled and marked.

import { h } from "./dom.js";
import { locale } from "./format.js";
import { icon } from "./icons.js";
import { textOf } from "./message.js";
import { pieces } from "./placeholders.js";

export const APP = "Your app";
const LONGEST = 1500; // characters of a text on a phone; real phones cut far earlier

/**
 * The data of a drawn notification.
 * @typedef {{message: import("./message.js").Message, language: string, values: object, time: number}} Shown
 */

/** A text of the message with its placeholders filled and marked, isolated from the text around. */
export function words(shown, field, className, tag = "p") {
  const text = textOf(shown.message, field, shown.language);
  if (text === "") return null;
  const nodes = pieces(text.slice(0, LONGEST), shown.values).map((piece) =>
    piece.kind === "plain"
      ? piece.text
      : h("span", { class: `ph ${piece.kind}`, title: `${piece.name}: ${piece.kind}` }, piece.text),
  );
  return h(tag, { class: className, dir: "auto", lang: locale(shown.language) }, nodes); // dir=auto isolates too
}

/** A substitute for the app's icon, which is not in the push. */
export function appIcon(count = null) {
  return h(
    "span",
    { class: "app-icon" },
    icon("bell"),
    count !== null && count > 0 ? h("span", { class: "app-badge" }, count > 9999 ? "9999+" : String(count)) : null,
  );
}

/** Make a card pressable by a button above its text, so that the text stays selectable. */
export function pressable(card, open, label) {
  if (open) card.append(h("button", { type: "button", class: "press", "aria-label": label, onclick: open }));
  return card;
}
