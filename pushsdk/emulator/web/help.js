// The help: keys, search terms, simulated behavior.

import { dialog, h } from "./dom.js";
import { guide } from "./links.js";

const KEYS = [
  [["j", "↓"], "next push"],
  [["k", "↑"], "previous push"],
  [["/"], "search"],
  [["e"], "lock screen or expanded"],
  [["l"], "next language"],
  [["g"], "newest push"],
  [["Enter"], "show each push of a group; Esc goes back"],
  [["c"], "compose a push"],
  [["s"], "send the push again"],
  [["x"], "edit the push and send it"],
  [["Ctrl", "Enter"], "send what is composed"],
  [["1", "2", "3", "4", "5"], "pushes, campaigns, users, faults, compose"],
  [["Enter", "Esc"], "leave the search, which stays"],
  [["Esc"], "close"],
  [["?"], "this help"],
];

const TERMS = [
  ["user:u-1029", "requests that name this user"],
  ['title:"black friday"', "words of the title, in any language"],
  ["lang:de", "has a text in this language"],
  ["group:17", "pushes with the same texts, one after the other"],
  ["campaign:UUID", "the request of a campaign"],
  ["status:429", "response status"],
  ["is:accepted", "result of the request"],
  ["spring sale", "words of any text"],
];

const pairs = (rows, left) => h("dl", { class: "help-list" }, rows.map(([key, what]) => h("div", null, h("dt", null, left(key)), h("dd", null, what))));

export function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog(
    "Help",
    h("p", null, "The guide has all about the emulator and the SDK: ", guide("emulator", null, "open it"), "."),
    h("h3", null, "Keys"),
    pairs(KEYS, (keys) => keys.map((key) => h("kbd", null, key))),
    h("h3", null, "Search"),
    pairs(TERMS, (term) => h("code", null, term)),
    h("h3", null, "What is simulated"),
    h(
      "p",
      null,
      "The interface defines the fields of a push, not how a phone shows a push, nor when it expires or replaces another. All of that is simulated and marked ",
      h("span", { class: "sim" }, "simulated"),
      " where it shows. Real phones differ: by maker, version, settings, and by what the app does.",
    ),
  );
}
