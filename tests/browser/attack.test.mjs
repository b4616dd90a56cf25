// What an attacker on the same machine, or a page of another site, would try.
import test from "node:test";
import assert from "node:assert/strict";
import net from "node:net";
import { readFileSync } from "node:fs";
import { folder, serve } from "./common.mjs";

const raw = (address, text) => new Promise((resolve) => {
  const { hostname, port } = new URL(address);
  const socket = net.connect(Number(port), hostname, () => socket.write(text));
  let answer = "";
  socket.on("data", (chunk) => { answer += chunk; });
  socket.on("close", () => resolve(answer));
  socket.on("error", () => resolve(answer));
  setTimeout(() => socket.destroy(), 3000);
});
const json = { "content-type": "application/json" };
const post = (address, path, body, headers = {}) => fetch(address + path, { method: "POST", headers: { ...json, ...headers }, body });

test("everything that should be refused is, and the server stays up", async () => {
  const server = await serve(folder());
  const { address } = server;
  const host = new URL(address).host;

  for (const path of ["/../../etc/passwd", "/api/runs/../../../etc/passwd", "/api/presets/..%2f..%2fetc%2fpasswd", "/api/runs/1/%2e%2e%2f%2e%2e"]) {
    const answer = await raw(address, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1.1 4\d\d/, path);
    assert.doesNotMatch(answer, /root:/);
  }
  for (const text of ['from = "/etc/passwd"', 'from = "../../../../etc/passwd"', '[traffic]\nflows = "/etc/passwd"', '[job]\nmodel = "/etc/passwd"', '[fabric]\ntopology = "file"\nfile = "/etc/passwd"']) {
    const answer = await (await post(address, "/api/check", JSON.stringify({ text: `${text}\n` }))).text();
    assert.doesNotMatch(answer, /root:/, text);
    assert.match(answer, /"valid":false/, text);
  }
  assert.equal((await post(address, "/api/check", JSON.stringify({ text: "x".repeat(3e6) }))).status, 413);
  assert.equal((await post(address, "/api/check", "{ not json")).status, 400);
  assert.equal((await post(address, "/api/runs", '{"name":"x","command":"serve","scenarios":[""]}')).status, 400);
  assert.equal((await post(address, "/api/runs", '{"name":"x","command":"run","scenarios":[""],"surprise":1}')).status, 422);
  assert.equal((await fetch(`${address}/api/runs`, { method: "POST", body: "{}" })).status, 415);
  assert.match(await raw(address, `GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`), /^HTTP\/1.1 421/);
  assert.match(await raw(address, `POST /api/runs HTTP/1.1\r\nHost: ${host}\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`), /^HTTP\/1.1 403/);

  const { hostname, port } = new URL(address);
  const idle = Array.from({ length: 1000 }, () => { const socket = net.connect(Number(port), hostname); socket.on("error", () => {}); return socket; });
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const memory = Number(readFileSync(`/proc/${server.child.pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);
  assert.ok(memory < 200_000, `memory stays bounded: ${memory} kB`);
  idle.forEach((socket) => socket.destroy());
  let alive = false;
  for (let attempt = 0; attempt < 40 && !alive; attempt += 1) {
    alive = await fetch(`${address}/api/runs`).then((answer) => answer.ok, () => false);
    if (!alive) await new Promise((resolve) => setTimeout(resolve, 500));
  }
  assert.ok(alive, "the server answers after a thousand idle connections");
  await server.kill();
});

test("an address other than loopback needs a token", async () => {
  await assert.rejects(serve(folder(), "--listen", "0.0.0.0:0"));
});
