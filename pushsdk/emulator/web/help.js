// The help: keys, simulated behavior.

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
  [["1", "2", "3", "4"], "pushes, users, faults, compose"],
  [["Enter", "Esc"], "leave the search, which stays"],
  [["Esc"], "close"],
  [["?"], "this help"],
];

export function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog(
    "Help",
    h("p", null, "The guide has all about the emulator, the search line and the SDK: ", guide("emulator", null, "open it"), "."),
    h("h3", null, "Keys"),
    h("dl", { class: "help-list" }, KEYS.map(([keys, what]) => h("div", null, h("dt", null, keys.map((key) => h("kbd", null, key))), h("dd", null, what)))),
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
