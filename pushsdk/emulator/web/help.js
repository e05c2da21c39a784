// The help: keys, the language of the search, and what is simulated.

import { dialog, h } from "./dom.js";

const KEYS = [
  [["j", "↓"], "next push"],
  [["k", "↑"], "previous push"],
  [["/"], "search"],
  [["e"], "lock screen or expanded"],
  [["l"], "next language"],
  [["g"], "newest push"],
  [["1", "2", "3", "4"], "pushes, campaigns, users, faults"],
  [["Enter", "Esc"], "leave the search, which stays"],
  [["Esc"], "close"],
  [["?"], "this help"],
];

const TERMS = [
  ["user:u-1029", "requests that name this user"],
  ['title:"black friday"', "words of the title, in any language"],
  ["lang:de", "has a text in this language"],
  ["campaign:UUID", "the request of a campaign"],
  ["status:429", "how it was answered"],
  ["is:accepted", "what became of it"],
  ["spring sale", "words of any text"],
];

const pairs = (rows, left) => h("dl", { class: "help-list" }, rows.map(([key, what]) => h("div", null, h("dt", null, left(key)), h("dd", null, what))));

export function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog(
    "Help",
    h("h3", null, "Keys"),
    pairs(KEYS, (keys) => keys.map((key) => h("kbd", null, key))),
    h("h3", null, "Search"),
    pairs(TERMS, (term) => h("code", null, term)),
    h("h3", null, "What is simulated"),
    h(
      "p",
      null,
      "The interface says what a push holds, not how a phone shows it, nor when a push expires or replaces another. All of that is this emulator's reading and is marked ",
      h("span", { class: "sim" }, "simulated"),
      " where it shows. Real phones differ: by maker, version, settings, and by what the app does.",
    ),
  );
}
