// The keyboard. While the user types, only Escape acts.

import { help } from "./help.js";

const VIEWS = { 1: "pushes", 2: "users", 3: "faults", 4: "compose", c: "compose" };

/** @param {object} app as in main */
export function listen(app) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") return escape(event, app, typing);
    if (typing) return;
    if (act(event, app)) event.preventDefault();
  });
}

function escape(event, app, typing) {
  if (typing) {
    typing.blur(); // the filter stays until the field is emptied
  } else if (location.hash.split("/").length > 2 && app.view !== "compose") {
    app.go(`#/${app.view}`);
  } else if (app.view === "pushes" && app.views.pushes.group) {
    app.views.pushes.closeGroup();
  }
  event.preventDefault();
}

/** @returns {boolean} true if the key had an effect */
function act(event, app) {
  const { pushes } = app.views;
  const { key } = event;
  if (key === "?") help();
  else if (key in VIEWS) app.go(`#/${VIEWS[key]}`);
  else if (key === "/") focusSearch(app);
  else if (app.view !== "pushes") return false;
  else if (key === "j" || (key === "ArrowDown" && inList(event))) pushes.move(1);
  else if (key === "k" || (key === "ArrowUp" && inList(event))) pushes.move(-1);
  else if (key === "g") newest(app);
  else if (key === "Enter" && event.target.id === "rows") pushes.openChosen();
  else if (pushes.detail.id === null) return false;
  else if (key === "e") pushes.detail.stage.toggle();
  else if (key === "l") pushes.detail.stage.nextLanguage();
  else if (key === "s" && !event.repeat) pushes.detail.sendAgain(); // a held key sends once
  else if (key === "x") pushes.detail.edit();
  else return false;
  return true;
}

// Arrows scroll any other focused element.
const inList = (event) => event.target === document.body || event.target.closest(".side") !== null || event.target.id === "main";

function focusSearch(app) {
  if (!app.views[app.view].input) {
    history.pushState(null, "", "#/pushes"); // unlike a new hash, this routes only once
    app.route(); // immediately, because a hidden field can't be focused
  }
  const { input } = app.views[app.view];
  input.focus();
  input.select();
}

function newest(app) {
  app.views.pushes.list.top();
  const first = app.views.pushes.feed.rows[0];
  if (first) app.go(`#/pushes/${first.id}`);
}
