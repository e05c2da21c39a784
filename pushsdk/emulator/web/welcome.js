// The contents of an empty inbox: how to send the first push to this server.

import { connect } from "./connect.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { guide } from "./links.js";

/** Large, beside the empty list. */
export function welcome() {
  return h(
    "div",
    { class: "welcome" },
    h("p", { class: "eyebrow" }, "Nothing here yet"),
    h("h2", null, "Send a push. It appears here."),
    h("p", { class: "lead" }, "Nothing leaves this machine, and no phone rings. Write a push here, or send one from your program:"),
    h("p", { class: "row" }, h("a", { class: "button primary", href: "#/compose" }, icon("pen"), "Compose a push"), guide("", { class: "button" }, icon("book"), "Read the guide")),
    connect(),
    h("p", { class: "hint" }, "Then try ", h("a", { href: "#/faults" }, "making the service fail"), ", or press ", h("kbd", null, "?"), " for the keys."),
  );
}
