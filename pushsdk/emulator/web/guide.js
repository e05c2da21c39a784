// The guide's pages: contents, previous and next page, buttons that copy code; a list of pages, closed on a narrow screen.

function element(tag, attributes, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

function contents() {
  const headings = [...document.querySelectorAll("article :is(h2, h3)[id]")];
  if (!headings.length) return;
  const items = headings.map((one) => element("li", { className: one.localName }, element("a", { href: `#${one.id}` }, one.textContent)));
  const nav = element("nav", { className: "toc", ariaLabel: "On this page" }, element("h2", {}, "On this page"), element("ul", {}, ...items));
  document.body.append(nav);
}

function neighbors() {
  const links = [...document.querySelectorAll(".pages a")];
  const here = links.findIndex((link) => link.ariaCurrent);
  const link = (name, target) => (target ? element("a", { href: target.href, className: name }, element("small", {}, name), target.textContent) : "");
  const around = here < 0 ? [] : [link("Previous", links[here - 1]), link("Next", links[here + 1])];
  document.querySelector("main").append(element("p", { className: "neighbors" }, ...around));
}

/** The text of a block; of a terminal session only the commands. */
function source(code) {
  const text = code.textContent;
  if (!code.classList.contains("language-console")) return text;
  return text.split("\n").filter((line) => line.startsWith("$ ")).map((line) => line.slice(2)).join("\n");
}

function copier(pre) {
  const button = element("button", { type: "button", className: "button small copy" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source(pre.firstElementChild));
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  const box = element("div", { className: "code-box" });
  pre.replaceWith(box);
  box.append(pre, button);
}

contents();
neighbors();
document.querySelectorAll("main pre").forEach(copier);
document.querySelector(".pages details").open = matchMedia("(min-width: 761px)").matches;
document.querySelector(".pages [aria-current]")?.scrollIntoView({ block: "center" });
