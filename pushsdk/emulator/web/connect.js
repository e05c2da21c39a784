// How a program reaches this emulator: its address, the key that the terminal shows, and a first push to copy.

import { get } from "./api.js";
import { copy, dialog, fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { snippet } from "./inspector.js";
import { tabs } from "./widgets.js";

const BASE = `${location.origin}/external/api`;

/** The emulator's own key and the name of the key's inbox, "" before its first request. */
export const service = { api_key: "", inbox: "" };

const curl = (key) => `curl -i ${BASE}/v1/push \\
  -H 'Api-Key: ${key}' \\
  -H 'Content-Type: application/json' \\
  -d '{
    "userIds": ["user-1"],
    "message": {
      "type": "MOBILE_PUSH",
      "iosEnabled": true,
      "androidEnabled": true,
      "title": {"en": "Hello {{ first_name | '"'there'"' }}"},
      "body": {"en": "Your first push has arrived."}
    }
  }'`;

const python = (key) => `import asyncio
from pushsdk import AsyncPushClient, MobilePush, placeholder

async def main():
    message = MobilePush(
        ios_enabled=True,
        android_enabled=True,
        title={"en": f"Hello {placeholder('first_name', 'there')}"},
        body={"en": "Your first push has arrived."},
    )
    async with AsyncPushClient("${BASE}", "${key}") as client:
        print(await client.send("user-1", message))

asyncio.run(main())`;

const shell = (key) => `export PUSHSDK_BASE_URL=${BASE}
export PUSHSDK_API_KEY=${key}
pushsdk send user-1 --title 'Hello'`;

/** Read the key, which changes when the emulator restarts. */
export async function readService() {
  Object.assign(service, await get("/service", { inbox: "" }));
  for (const box of document.querySelectorAll("[data-connect]")) if (box.dataset.connect !== service.api_key) draw(box);
}

/** Address and key with buttons that copy them; follows the key. */
export function connect() {
  return draw(h("div", { class: "connect" }));
}

function draw(box) {
  box.dataset.connect = service.api_key;
  const row = (name, value) =>
    h("div", null, h("dt", null, name), h("dd", null, h("code", null, value), h("button", { type: "button", class: "button small", "aria-label": `Copy ${name}`, onclick: () => copy(value, name) }, icon("copy"), "Copy")));
  return fill(
    box,
    h("dl", { class: "facts address" }, row("base_url", BASE), service.api_key ? row("api_key", service.api_key) : null),
    h("p", { class: "hint" }, "This is the key that the terminal shows. Any other text is a key as well, with an inbox of its own."),
    tabs(
      "First push",
      [
        ["curl", "curl", () => [snippet("curl", curl(service.api_key))]],
        ["python", "Python", () => [snippet("Python", python(service.api_key))]],
        ["shell", "Command line", () => [snippet("Command line", shell(service.api_key))]],
      ],
      "curl",
      () => {},
    ),
  );
}

export function showConnect() {
  if (!document.querySelector("dialog[open]")) dialog("Connect a program", h("p", { class: "quiet" }, "Nothing leaves this machine, and no phone rings."), connect()).classList.add("wide");
}
