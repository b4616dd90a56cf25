// What an attacker on the same machine, or a page of another site, would try.
import test from "node:test";
import assert from "node:assert/strict";
import net from "node:net";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fatflow, folder, serve } from "./common.mjs";

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
    assert.match(answer, /"valid":\s*false/, text);
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

test("people do to each other's runs and files nothing that they may not", async () => {
  const users = join(folder(), "team.toml");
  const add = (...words) => fatflow("serve", "--users", users, "--new-user", ...words).trim();
  const tokens = { ana: add("ana"), bob: add("bob"), eve: add("eve", "--role", "look"), old: add("old", "--expires", "2026-01-31") };
  const text = readFileSync(users, "utf8");
  writeFileSync(users, text.replace('name = "ana"', 'name = "ana"\nprivate = true').replace('name = "bob"', 'name = "bob"\nwaiting = 0\nquestions = 0'));
  const server = await serve(folder(), "--users", users);
  const { address } = server;
  const ask = (who, method, path, body, headers = {}) => fetch(address + path, {
    method, headers: { ...(tokens[who] ?? who ? { authorization: `Bearer ${tokens[who] ?? who}` } : {}), ...(body === undefined ? {} : json), ...headers }, body: body === undefined ? undefined : JSON.stringify(body),
  });
  const status = async (...words) => (await ask(...words)).status;
  const start = { name: "x", command: "topo", scenarios: ['from = "small-16"\n'] };

  // Forged and expired tokens, and none at all.
  for (const path of ["/api/runs", "/api/me", "/api/files", "/api/audit", "/api/presets"]) {
    assert.equal(await status("", "GET", path), 401, path);
    assert.equal(await status("old", "GET", path), 401, `an expired token on ${path}`);
  }
  assert.match(await (await ask("old", "GET", "/api/runs")).text(), /expired/);
  const digest = text.match(/token = "([^"]+)"/)[1];
  for (const forged of [`${tokens.ana}0`, tokens.ana.slice(1), `${tokens.ana.slice(0, -1)}g`, digest, "ana-ana-ana-ana-ana"]) assert.equal(await status(forged, "GET", "/api/runs"), 401, "a forged token");

  // Ana's runs and files are hers alone.
  assert.equal(await status("ana", "POST", "/api/runs", start), 201);
  for (let turn = 0; turn < 100 && (await (await ask("ana", "GET", "/api/runs/1")).json()).status !== "done"; turn += 1) await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(await status("ana", "GET", "/api/runs/1/report.html"), 200);
  for (const [method, path, body] of [["GET", "/api/runs/1"], ["GET", "/api/runs/1/result.json"], ["GET", "/api/runs/1/report.html"], ["GET", "/api/runs/1/scenario.toml"], ["DELETE", "/api/runs/1", {}], ["POST", "/api/runs/1/stop", {}], ["PUT", "/api/runs/1/note", { note: "mine" }]]) {
    assert.equal(await status("bob", method, path, body), 404, `bob: ${method} ${path}`);
  }
  assert.deepEqual(await (await ask("bob", "GET", "/api/runs")).json(), []);
  const put = (who, name, content = "{}") => fetch(`${address}/api/files/${name}`, { method: "PUT", headers: { authorization: `Bearer ${tokens[who]}`, "content-type": "application/octet-stream" }, body: content });
  assert.equal((await put("ana", "config.json")).status, 204);
  assert.deepEqual(await (await ask("bob", "GET", "/api/files")).json(), []);
  assert.equal(await status("bob", "GET", "/api/files/config.json"), 404);
  for (const name of ["..%2fbob%2fx", "..", "%2e%2e%2fx", ".x", "scenario.toml", "report.html", "a%00b", "-x"]) assert.ok([400, 404, 405, 415].includes((await put("ana", name)).status), name);
  assert.equal((await put("ana", "big", "x".repeat(33 << 20))).status, 413);

  // Once it is no longer private, others look and change nothing.
  writeFileSync(users, text.replace('name = "bob"', 'name = "bob"\nwaiting = 0\nquestions = 0'));
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await status("bob", "GET", "/api/runs/1"), 200);
  for (const [method, path, body] of [["DELETE", "/api/runs/1", {}], ["POST", "/api/runs/1/stop", {}], ["PUT", "/api/runs/1/note", { note: "mine" }]]) assert.equal(await status("bob", method, path, body), 403, `bob: ${method} ${path}`);

  // Limits of a person, and of a role.
  assert.equal(await status("bob", "POST", "/api/runs", start), 429);
  assert.equal(await status("bob", "POST", "/api/check", { text: "" }), 503);
  for (const [method, path, body] of [["POST", "/api/runs", start], ["POST", "/api/check", { text: "" }], ["POST", "/api/set", { text: "", key: "seed", value: "1" }], ["DELETE", "/api/runs/1", {}], ["PUT", "/api/runs/1/note", { note: "x" }]]) assert.equal(await status("eve", method, path, body), 403, `eve: ${method} ${path}`);
  assert.equal((await put("eve", "config.json")).status, 403);
  assert.equal(await status("eve", "GET", "/api/runs/1"), 200);

  // Pages of other sites, with the cookie that a browser would add.
  const login = await ask("ana", "POST", "/api/login", {});
  const cookie = login.headers.get("set-cookie");
  assert.match(cookie, /HttpOnly; SameSite=Strict/);
  const own = { cookie: cookie.split(";")[0] };
  assert.equal(await status("", "GET", "/api/runs", undefined, own), 200);
  assert.equal(await status("", "POST", "/api/runs", start, { ...own, origin: "http://evil.example" }), 403);
  assert.equal(await status("", "POST", "/api/runs", start, { ...own, origin: address.replace("http", "https") }), 403, "TLS is a proxy's");
  assert.equal(await status("", "POST", "/api/runs", start, { ...own, "content-type": "text/plain" }), 415);
  assert.equal(await status("", "DELETE", "/api/files/config.json", undefined, { ...own, origin: "http://evil.example" }), 403);
  assert.equal((await fetch(`${address}/api/files/x`, { method: "PUT", headers: { ...own, "content-type": "text/plain" }, body: "x" })).status, 415);

  // A person who is taken out of the file is out at once; and all of it is on record.
  const entries = await (await ask("ana", "GET", "/api/audit")).json();
  assert.ok(entries.every((entry) => entry.user === "ana") && entries.some((entry) => entry.asked === "POST /api/runs" && entry.status === 201));
  assert.doesNotMatch(JSON.stringify(entries), new RegExp(tokens.ana), "tokens are not on record");
  writeFileSync(users, "users = []\n");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await status("ana", "GET", "/api/runs"), 401);
  await server.kill();
});
