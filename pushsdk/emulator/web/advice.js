// What the linter says about a request: in the header of a push, and in the composer.

import { bdi, clipped, fill, h } from "./dom.js";
import { plain, plural } from "./format.js";
import { icon } from "./icons.js";

const SHOWN = 3; // pieces of advice that are open at first

/**
 * @param {{path: string, code: string, message: string}[]} problems
 * @param {((problem: object) => void) | null} open shows the field of a problem
 */
export function advice(problems, open = null) {
  if (!problems.length) return null;
  const list = h("ul", null);
  const show = (count) => fill(list, problems.slice(0, count).map((problem) => row(problem, open)));
  const rest = problems.length - SHOWN;
  const more = h("button", { type: "button", class: "more", hidden: rest <= 0 }, `${rest} more`);
  more.addEventListener("click", () => {
    show(problems.length);
    more.remove();
  });
  show(rest > 0 ? SHOWN : problems.length);
  return h("section", { class: "advice", "aria-label": plural(problems.length, "piece of advice", "pieces of advice") }, list, more);
}

function row(problem, open) {
  const path = `${plain(problem.path)} · ${plain(problem.code)}`;
  const where = open
    ? h("button", { type: "button", class: "more mono", onclick: () => open(problem) }, bdi(path))
    : h("span", { class: "mono quiet" }, bdi(path));
  return h("li", { class: problem.code === "refused" ? "refused" : null }, icon("alert"), h("div", null, clipped(sentence(plain(problem.message)), 300, "Advice"), " ", where));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
