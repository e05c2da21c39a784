// The page's icons: one stroke path each on a 24 grid, for decoration only.

import { s } from "./dom.js";

const PATHS = {
  alert: "M12 4 2.8 19.5h18.4L12 4Zm0 6v4.2m0 2.8v.1",
  android: "M5.5 3.5h13v17h-13zM10 18h4",
  apple: "M8 3.5h8a2 2 0 0 1 2 2v13a2 2 0 0 1-2 2H8a2 2 0 0 1-2-2v-13a2 2 0 0 1 2-2Zm2.5 2h3",
  back: "M15 5 8 12l7 7",
  book: "M5 4.5h9.5A3.5 3.5 0 0 1 18 8v11.5H8a3 3 0 0 1-3-3v-12Zm0 12a3 3 0 0 1 3-3h10",
  bell: "M12 4a5 5 0 0 0-5 5c0 5-2 6.5-2 6.5h14S17 14 17 9a5 5 0 0 0-5-5Zm-2 14.5a2.1 2.1 0 0 0 4 0",
  bolt: "M13 3 5 13.5h6L10.5 21 19 10h-6.5L13 3Z",
  check: "m5 12.5 4.5 4.5L19 7.5",
  chevron: "m7 10 5 5 5-5",
  copy: "M9 9V4h11v11h-5M4 9h11v11H4z",
  download: "M12 4v10.5m0 0 4-4m-4 4-4-4M5 19h14",
  external: "M14 5h5v5m0-5-8 8M10 6H5v13h13v-5",
  help: "M9 9.2a3 3 0 1 1 4.3 2.7c-.9.5-1.3 1-1.3 2.1m0 2.8v.1M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z",
  image: "M4 5h16v14H4zm0 11 5-5 4 4 2.5-2.5L20 17M15.5 9.5v.1",
  inbox: "M4 13 6.5 5h11L20 13v6H4v-6Zm0 0h5a3 3 0 0 0 6 0h5",
  key: "M14.5 13.5a5 5 0 1 0-4-4L4 16v4h4v-2.5h2.5V15l1.5-1.5m4-6v.1",
  layers: "m12 4 8.5 4.5L12 13 3.5 8.5 12 4Zm-8.5 8.5L12 17l8.5-4.5M3.5 16 12 20.5 20.5 16",
  megaphone: "M4 10v4l3 .4V19h3v-4.2L19 18V6L7 9.6 4 10Zm3-.4v4.8",
  pen: "m5 19 1-4L16 5l3 3L9 18l-4 1Z",
  repeat: "M4.5 11A7.5 7.5 0 0 1 18 7.5L20 9m0-4.5V9h-4.5M19.5 13A7.5 7.5 0 0 1 6 16.5L4 15m0 4.5V15h4.5",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Zm4.7-1.8L20 20",
  send: "M4 12 20 4.5 15.5 20l-4-6.5L4 12Zm7.5 1.5L20 4.5",
  trash: "M5 7h14M10 7V4.5h4V7m-7.5 0 1 13h9l1-13M10 11v5m4-5v5",
  users: "M9 11.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM3 19.5c0-3.3 2.7-5.5 6-5.5s6 2.2 6 5.5M15.5 5a3.5 3.5 0 0 1 0 6.3M17 14.3c2.4.7 4 2.6 4 5.2",
  wave: "M3 12h3l2.5-6 4 13 3-9 1.5 2H21",
};

/** @param {keyof typeof PATHS} name */
export function icon(name) {
  return s(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    s("path", { d: PATHS[name] ?? PATHS.bell }),
  );
}
