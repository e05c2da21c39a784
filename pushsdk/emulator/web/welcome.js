// The contents of an empty inbox: instructions to send the first push to this server.

import { fill, h } from "./dom.js";
import { snippet } from "./inspector.js";
import { turnedAway } from "./notices.js";
import { tabs } from "./widgets.js";

const BASE = `${location.origin}/external/api`;

const CURL = `curl -i ${BASE}/v1/push \\
  -H 'Api-Key: my-first-inbox' \\
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

const PYTHON = `import asyncio
from pushsdk import AsyncPushClient, MobilePush, placeholder

async def main():
    message = MobilePush(
        ios_enabled=True,
        android_enabled=True,
        title={"en": f"Hello {placeholder('first_name', 'there')}"},
        body={"en": "Your first push has arrived."},
    )
    async with AsyncPushClient("${BASE}", "my-first-inbox") as client:
        print(await client.send("user-1", message))

asyncio.run(main())`;

const knocked = h("div", { class: "knocked", role: "status" });

/** The requests that reached no inbox, often including a new user's first push. */
export function showUnmatched(requests) {
  const newest = requests.slice(0, 4);
  const key = JSON.stringify(newest);
  if (knocked.dataset.shown === key) return;
  knocked.dataset.shown = key;
  fill(knocked, newest.length ? h("h3", null, "Requests were refused") : null, turnedAway(newest));
}

/** Large, beside the empty list. */
export function welcome() {
  return h(
    "div",
    { class: "welcome" },
    h("p", { class: "eyebrow" }, "Nothing here yet"),
    h("h2", null, "Send a push. It appears here."),
    h(
      "p",
      { class: "lead" },
      "Nothing leaves this machine, and no phone rings. Any text works as the Api-Key, and each key has its own inbox.",
    ),
    h(
      "dl",
      { class: "facts address" },
      h("div", null, h("dt", null, "base_url"), h("dd", { class: "mono" }, BASE)),
      h("div", null, h("dt", null, "api_key"), h("dd", { class: "mono" }, "my-first-inbox", h("span", { class: "quiet" }, " or any other"))),
    ),
    tabs(
      "First push",
      [
        ["curl", "curl", () => [snippet("curl", CURL)]],
        ["python", "Python", () => [snippet("Python", PYTHON)]],
      ],
      "curl",
      () => {},
    ),
    knocked,
    h("p", { class: "hint" }, "Then try ", h("a", { href: "#/faults" }, "making the service fail"), ", or press ", h("kbd", null, "?"), " for the keys."),
  );
}

/** Small, instead of the list. */
export function waiting() {
  return h("div", { class: "radar" }, h("span", { class: "rings", "aria-hidden": "true" }), h("p", null, "Listening for pushes"));
}
