// The stage: both phones with a push on them, in a language and a view that stay from one push to the next.

import { fill, h, simulated } from "./dom.js";
import { languageName } from "./format.js";
import { imagesOn, switchImages } from "./links.js";
import { images } from "./message.js";
import { phone } from "./phones.js";
import { segmented, toggle } from "./widgets.js";

export class Stage {
  /** @param {() => void} [changed] called when another language or view was chosen */
  constructor(changed = () => {}) {
    this.changed = changed;
    this.expanded = false;
    this.language = null;
    this.bar = h("div", { class: "stage-bar" });
    this.screens = h("div", { class: "stage-screens" });
    this.root = h("div", { class: "stage" }, this.bar, this.screens);
  }

  /**
   * Show a push, or an explanation instead of the phones.
   * @param {import("./message.js").Message} message
   * @param {{values: object, time: number, instead?: Node | null, still?: boolean}} options
   */
  show(message, { values, time, instead = null, still = false }) {
    const { languages } = message;
    Object.assign(this, { message, values, time, instead });
    if (!languages.includes(this.language)) this.language = languages.find((one) => /^en\b/.test(one)) ?? languages[0] ?? "en";
    this.pictures = ["ios", "android"].some((platform) => Object.values(images(message, platform)).some(Boolean));
    const key = JSON.stringify([languages, instead === null, this.pictures]);
    if (key !== this.shown) this.drawBar(); // a redraw would lose the focus
    this.shown = key;
    this.languageSwitch.choose(this.language);
    this.draw(still);
  }

  drawBar() {
    const { languages } = this.message;
    this.viewSwitch = segmented(
      "View",
      [["lock", "Lock screen"], ["expanded", "Expanded"]],
      this.expanded ? "expanded" : "lock",
      (view) => this.choose({ expanded: view === "expanded" }),
    );
    this.languageSwitch = segmented(
      "Language",
      languages.map((language) => [language, language.slice(0, 24), languageName(language).slice(0, 60)]),
      this.language,
      (language) => this.choose({ language }),
    );
    this.bar.hidden = this.instead !== null;
    fill(this.bar, languages.length ? this.languageSwitch.root : h("span", { class: "quiet" }, "no text in any language"), this.viewSwitch.root, this.pictures ? toggle("Load images", imagesOn, switchImages).root : null);
  }

  /** Draw the phones, without moving their cards if `still`. */
  draw(still = true) {
    this.screens.classList.toggle("still", still);
    fill(this.root, this.bar, this.instead ?? this.screens);
    if (this.instead) return;
    const shown = { message: this.message, language: this.language, values: this.values, time: this.time };
    const options = { expanded: this.expanded, open: () => this.toggle() };
    fill(this.screens, phone("ios", shown, options), phone("android", shown, options), simulated());
  }

  choose(choice) {
    Object.assign(this, choice);
    this.viewSwitch.choose(this.expanded ? "expanded" : "lock");
    this.languageSwitch.choose(this.language);
    this.draw();
    this.changed();
  }

  toggle() {
    this.choose({ expanded: !this.expanded });
  }

  nextLanguage() {
    const { languages } = this.message;
    if (languages.length > 1) this.choose({ language: languages[(languages.indexOf(this.language) + 1) % languages.length] });
  }
}
