// What the browser view has beside writing and running: files, sweeps, the fabric, people.
import test from "node:test";
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fatflow, folder, open, serious, serve } from "./common.mjs";

const show = async (page, hash) => {
  await page.evaluate((hash) => { location.hash = hash; }, hash);
  await page.waitForTimeout(150);
};
const run = async (address, body) => {
  const answer = await fetch(`${address}/api/runs`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const { id } = await answer.json();
  for (;;) {
    const state = await (await fetch(`${address}/api/runs/${id}`)).json();
    if (!["waiting", "running"].includes(state.status)) return state;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
};
const INCAST = `name = "incast"
[cluster]
gpus = 16
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 4
[traffic]
pattern = "incast"
senders = 8
bytes = "256KiB"
`;

test("files are brought, used and read; settings are swept by ticking", async () => {
  const place = folder();
  writeFileSync(join(place, "my cables.csv"), `a,b,rate\n${Array.from({ length: 16 }, (_, at) => `node${Math.floor(at / 8)}/nic${at % 8},leaf0,400Gbps`).join("\n")}\n`);
  fatflow("collective", "all_reduce", "small-16", "-b", "1M", "-e", "16M", "--nccl-tests", join(place, "all_reduce.txt"), "--json");
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(`${server.address}/#/files`);
  await page.setInputFiles("#bring", [join(place, "my cables.csv"), join(place, "all_reduce.txt")]);
  await page.waitForFunction(() => document.querySelectorAll("#shelf tr").length === 2);
  assert.match(await page.textContent("#shelf"), /my_cables\.csv/, "odd letters of a name are replaced");
  assert.deepEqual(await serious(page), []);
  await page.click('tr:has-text("my_cables") button:has-text("Use as the topology")');
  await page.waitForSelector("#problems li.good");
  const text = await page.evaluate(() => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText);
  assert.match(text, /topology = "file"[\s\S]*file = "my_cables.csv"/);

  await show(page, "#/files");
  await page.check('[aria-label="tick all_reduce.txt"]');
  await page.click("#observe");
  await page.waitForSelector("#view iframe");
  assert.match(await page.textContent("#view"), /observe/);

  await show(page, "#/files");
  await page.click('[aria-label="Take away my_cables.csv"]');
  await page.waitForFunction(() => document.querySelectorAll("#shelf tr").length === 1);

  await page.evaluate(() => localStorage.setItem("fatflow", 'from = "small-16"\n'));
  await page.goto(`${server.address}/#/sweep`);
  await page.reload();
  await page.waitForSelector('[data-vary="network.routing.qps"]');
  await page.check('[data-vary="network.routing.qps"]');
  await page.fill('[aria-label="values of network.routing.qps"]', "1, 4");
  await page.fill('[aria-label="find a setting to vary"]', "sequences per step");
  await page.check('[data-vary="job.batch.sequences"]');
  assert.match(await page.textContent("#sweep"), /Sweep 2 cases/);
  assert.deepEqual(await serious(page), []);
  await page.click("#start-sweep");
  await page.waitForSelector("#view iframe");
  const frame = page.frameLocator("#view iframe");
  const answer = await frame.locator("body").innerText();
  assert.match(answer, /network\.routing\.qps/);
  assert.match(answer, /All cases[\s\S]*capital_usd/, "all rows, with their money");
  await show(page, "#/runs");
  await page.check('[aria-label="tick run 2"]');
  await page.click("#to-sweep");
  assert.match(await page.textContent("#sweep"), /the ticked runs: 2/);
  await page.setViewportSize({ width: 390, height: 900 });
  for (const hash of ["#/files", "#/sweep", "#/audit"]) {
    await show(page, hash);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 1, `nothing sticks out of a phone on ${hash} (${overflow})`);
    assert.deepEqual(await serious(page), [], `nothing serious on a phone on ${hash}`);
  }
  assert.deepEqual(complaints.filter((words) => !words.includes("sandbox")), []);
  await browser.close();
  await server.kill();
});

test("what people ask of a scenario is a button, and its answer says which is best", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#problems li.good");
  await page.selectOption("#presets", "small-128");
  assert.ok(await page.isDisabled("#start"), "the preset is not there yet, and nothing else is run in its place");
  const shown = async () => {
    const run = Number(page.url().match(/run\/(\d+)/)[1]);
    return (await (await fetch(`${server.address}/api/runs`)).json()).find((one) => one.id === run);
  };
  const asked = { "Non-blocking": /oversubscription 1:1 has the shortest step/, "queue pairs": /qps (8|16|32) has the shortest step/, "RoCE": /A tie within the model's error.*yours/s };
  for (const [question, answer] of Object.entries(asked)) {
    await show(page, "#/");
    await page.click(`#questions button:not([disabled]):has-text("${question}")`);
    await page.waitForSelector("#view iframe", { timeout: 60_000 });
    assert.match((await shown()).figures.verdict, answer);
  }
  // A link that flaps: which, and when, is said before it runs; a scenario's own fault is not forgotten.
  await show(page, "#/");
  await page.click("#tab-form");
  await page.click("#add-fault");
  await page.waitForSelector("#problems li.good");
  await page.click("#ask-flap");
  await page.selectOption('#flap [name="on"]', { index: 1 });
  assert.match(await page.textContent("#flap"), /in place of the scenario's own fault, not on top/);
  assert.deepEqual(await serious(page), []);
  // What cannot be is said at the form, and nothing runs.
  await page.selectOption('#flap [name="often"]', "again");
  await page.fill('#flap [name="down for"]', "2s");
  await page.click("#flap .primary");
  await page.waitForSelector("#flap .wrong");
  assert.match(await page.textContent("#flap .wrong"), /down for 2s of every 500ms/);
  await page.selectOption('#flap [name="often"]', "once");
  await page.click("#flap .primary");
  await page.waitForSelector("#view iframe", { timeout: 180_000 });
  const flapped = await shown();
  assert.match(flapped.name, /: leaf 0 - spine 0 is down once$/);
  assert.match(flapped.figures.verdict, /fault/i);
  const asRun = await (await fetch(`${server.address}/api/runs/${flapped.id}/scenario.toml`)).text();
  assert.match(asRun, /on = "NIC 0"[\s\S]*on = "leaf 0 - spine 0"/, "on top of the scenario's own");
  const refused = await run(server.address, { name: "x", command: "compare", scenarios: ['from = "small-16"\n'], vary: "--help" });
  assert.equal(refused.status, "failed", "what varies is a setting and no flag");
  await show(page, "#/runs");
  await page.click('th button:has-text("verdict")');
  assert.equal(await page.getAttribute('th:has(button:has-text("verdict"))', "aria-sort"), "ascending");
  assert.deepEqual(await serious(page), []);
  assert.deepEqual(complaints, []);
  await browser.close();
  await server.kill();
});

test("the form takes ratios as people write them, and faults; what is wrong stays as it was typed", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.evaluate(() => localStorage.setItem("fatflow", 'from = "small-128"\nname = "Mine"\n'));
  await page.reload();
  await page.waitForSelector("#problems li.good");
  await page.click("#tab-form");
  const holds = (words) => page.waitForFunction((words) => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText.includes(words), words);
  const write = async (selector, value) => { await page.fill(selector, value); await page.press(selector, "Enter"); };
  const ratio = '[data-key="fabric.oversubscription"]';
  await write(ratio, "two to one");
  await page.waitForSelector(".setting .wrong");
  assert.equal(await page.inputValue(ratio), "two to one", "what is wrong stays to be mended");
  await write(ratio, "2");
  await holds("oversubscription = 2");
  await page.waitForSelector("#problems li.good");
  assert.equal(await page.inputValue(ratio), "2:1", "what it became");
  await write(ratio, "4:1");
  await holds('oversubscription = "4:1"');

  await page.click("#add-fault");
  await holds('kind = "flap"');
  await page.waitForSelector("#problems li.good");
  await page.selectOption('[data-fault="0.kind"]', "slow-nic");
  await holds('rate = "100Gbps"');
  await write('[data-fault="0.on"]', "NIC 999");
  await page.waitForSelector(".fault .wrong");
  assert.equal(await page.inputValue('[data-fault="0.on"]'), "NIC 999");
  await write('[data-fault="0.on"]', "NIC 3");
  await holds('on = "NIC 3"');
  await page.waitForSelector("#problems li.good");
  assert.deepEqual(await serious(page), [], "axe finds nothing serious in the form");
  await page.setViewportSize({ width: 390, height: 900 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) <= 1, "the form fits a phone");
  assert.deepEqual(await serious(page), [], "nor on a phone");
  await page.click('[aria-label="take away fault 1"]');
  await page.waitForFunction(() => !document.querySelector(".fault"));
  await page.waitForFunction(() => !document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText.includes("faults"));
  assert.deepEqual(complaints, []);
  await browser.close();
  await server.kill();
});

test("the form names hardware, leaves settings out again, and offers what would be right", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  const mine = 'from = "small-128"\nname = "Mine"\n';
  await page.evaluate((mine) => localStorage.setItem("fatflow", mine), mine);
  await page.reload();
  await page.waitForSelector("#problems li.good");
  const text = () => page.evaluate(() => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText);
  const holds = (words, is = true) => page.waitForFunction(([words, is]) => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText.includes(words) === is, [words, is]);
  await page.click("#tab-form");
  await page.waitForSelector('select[data-key="cluster.gpu"]');
  assert.match(await page.textContent('[data-key="cluster.gpu"]'), /h200-sxm: NVIDIA H200/, "names and what they are");
  await page.selectOption('[data-key="cluster.gpu"]', "h200-sxm");
  await holds('gpu = "h200-sxm"');
  await page.selectOption('[data-key="fabric.leaf.switch"]', "cloudengine-9860");
  await holds('switch = "cloudengine-9860"');
  await page.click('[aria-label="leave fabric.leaf.switch out"]');
  await holds("switch", false);
  await page.waitForSelector("#problems li.good");
  assert.equal(await page.inputValue('[data-key="fabric.leaf.switch"]'), "", "what has no value is there to be set");

  await page.fill('[data-key="cluster.gpus"]', "256");
  await page.press('[data-key="cluster.gpus"]', "Enter");
  await page.click('button:has-text("use all 256")');
  await page.click('.setting button:has-text("dp = 32")');
  await page.waitForSelector("#problems li.good");
  assert.match(await text(), /gpus = 256[\s\S]*gpus = 256[\s\S]*dp = 32/);
  // Emptied is left out: the preset's own fits no longer, and is said to be the preset's.
  await page.fill('[data-key="job.parallel.dp"]', "");
  await page.press('[data-key="job.parallel.dp"]', "Enter");
  await holds("dp = ", false);
  await page.waitForSelector("#problems li:not(.good)");
  assert.match(await page.textContent("#problems"), /preset small-128: .*not the job's 256/);
  await page.click('#problems button:has-text("dp = 32")');
  await page.waitForSelector("#problems li.good");
  assert.deepEqual(await serious(page), [], "axe finds nothing serious in the form");

  const own = await text();
  await page.selectOption("#presets", "small-16");
  await holds("small-16");
  await page.click("#back");
  await holds("small-16", false);
  assert.equal(await text(), own, "a preset does not take what was written away");

  for (const qps of [1, 16]) {
    const scenario = `from = "small-16"\nname = "Mine"\n[network.routing]\nqps = ${qps}\n`;
    const done = await run(server.address, { name: "Mine", command: "run", engine: "flow", scenarios: [scenario] });
    assert.equal(done.status, "done", done.message);
  }
  await show(page, "#/runs");
  await page.reload();
  await page.waitForSelector("#runs .changed");
  assert.match(await page.textContent("#runs tr:first-child"), /since run 1: qps 1 → 16/, "runs of one name say what changed");
  await show(page, "#/run/2");
  await page.waitForSelector("#view iframe");
  assert.match(await page.title(), /2: Mine/);
  const over = () => page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
  assert.ok(await over() <= 0, `the report alone scrolls (${await over()})`);
  await show(page, "#/fabric/2");
  await page.waitForSelector("canvas");
  assert.ok(await page.isDisabled('.kinds label:has-text("queue") input'), "flows have no queues to show");
  assert.deepEqual(complaints.filter((words) => !words.includes("sandbox")), []);
  await browser.close();
  await server.kill();
});

test("what is typed in the form is not lost to answers about what was typed before", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.evaluate(() => localStorage.setItem("fatflow", 'from = "small-128"\nname = "Typed"\n'));
  await page.reload();
  await page.waitForSelector("#problems li.good");
  // Each answer comes while the next fields are being typed.
  for (const path of ["check", "set"]) {
    await page.route(`**/api/${path}`, async (route) => { await new Promise((resolve) => setTimeout(resolve, 250)); await route.continue(); });
  }
  await page.click("#tab-form");
  // As a person goes through a form: Tab goes from field to field, and selects what is there.
  await page.focus("#filter");
  const wanted = { "cluster.gpus": "256", "job.gpus": "256", "job.parallel.dp": "32", "job.batch.sequences": "1024", "job.batch.micro": "2", "job.batch.length": "4096" };
  for (const [key, value] of Object.entries(wanted)) {
    const at = () => page.evaluate(() => document.activeElement.dataset.key);
    for (let tabs = 0; await at() !== key && tabs < 60; tabs += 1) await page.keyboard.press("Tab");
    assert.equal(await at(), key, "Tab comes to it");
    await page.keyboard.type(value, { delay: 140 });
  }
  const now = () => Promise.all(Object.keys(wanted).map((key) => page.inputValue(`[data-key="${key}"]`)));
  assert.deepEqual(await now(), Object.values(wanted), "as typed");
  // Pressed at once: what runs is the scenario with all of it.
  await page.click("#start");
  await page.waitForSelector("#view iframe", { timeout: 60_000 });
  const text = await (await fetch(`${server.address}/api/runs/1/scenario.toml`)).text();
  for (const [key, value] of Object.entries(wanted)) assert.match(text, new RegExp(`\\b${key.split(".").pop()} = ${value}\\b`), `${key} in ${text}`);
  await page.click('nav a:has-text("Scenario")');
  await page.waitForSelector("#problems li.good");
  assert.deepEqual(await now(), Object.values(wanted), "as written");
  assert.deepEqual(complaints.filter((words) => !words.includes("sandbox")), []);
  await browser.close();
  await server.kill();
});

test("the fabric is drawn from the cluster to a port, over time", async () => {
  const server = await serve(folder());
  const done = await run(server.address, { name: "incast", command: "run", engine: "packet", scenarios: [INCAST] });
  assert.equal(done.status, "done", done.message);
  const film = await (await fetch(`${server.address}/api/runs/1/fabric.json`)).json();
  const { browser, page, complaints } = await open();
  await page.goto(`${server.address}/#/run/1`);
  await page.click('a:has-text("Fabric")');
  await page.waitForSelector("canvas");
  assert.match(page.url(), /#\/fabric\/1$/, "the picture has an address");
  const painted = () => page.evaluate(() => {
    const canvas = document.querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0;
    for (let at = 0; at < data.length; at += 4) sum = (sum * 31 + data[at] + 7 * data[at + 1] + 13 * data[at + 2] + data[at + 3]) % 1000003;
    return sum;
  });
  const differs = async (from, why) => {
    for (let turn = 0; turn < 50; turn += 1) {
      if (await painted() !== from) return;
      await page.waitForTimeout(100);
    }
    assert.fail(why);
  };
  const whole = await painted();
  const busiest = await page.textContent("#busiest tbody tr:first-child");
  const most = film.links.load.indexOf(Math.max(...film.links.load));
  assert.ok(busiest.includes(film.nodes.name[film.links.to[most]]), `the busiest link is named: ${busiest}`);

  await page.check('.kinds label:has-text("queue") input');
  await differs(whole, "queues colour it otherwise");
  const deepest = Math.max(...film.links.peak_queue_bytes);
  assert.match(await page.textContent("#busiest tbody tr:first-child"), new RegExp(`${(deepest / 1e6).toPrecision(3)} MB|${(deepest / 1e3).toPrecision(3)} kB`));
  await page.focus("#moment");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  assert.match(await page.textContent(".time output"), /from /);
  await page.waitForTimeout(200);
  const early = await painted();
  await page.fill("#moment", String(Math.floor(film.at_s.length / 2)));
  await differs(early, "another moment looks otherwise");

  const ends = [film.links.to, film.links.from].map((of) => film.nodes.name[of[most]]);
  await page.fill('[aria-label="find a link"]', ends.join(" - "));
  await page.waitForSelector(".found button");
  assert.match(await page.textContent(".found"), new RegExp(`${ends[1]} → ${ends[0]}`), "a link is found as faults name it");
  await page.fill('[aria-label="find a link"]', "edge 1");
  await page.click(".found button >> nth=0");
  assert.ok(Number(await page.getAttribute("canvas", "data-zoom")) > 1, "it zooms to what was found");
  assert.match(await page.textContent(".cable"), /Gb\/s.*queue pairs/s);
  const ports = await page.textContent(".fabric caption");
  assert.match(ports, /\d+ ports?/);
  await page.click('.crumbs button:has-text("cluster")');
  assert.equal(await page.getAttribute("canvas", "data-zoom"), "1.00");
  await page.focus("canvas");
  await page.keyboard.press("+");
  assert.ok(Number(await page.getAttribute("canvas", "data-zoom")) > 1.4, "the keyboard zooms");
  assert.deepEqual(await serious(page), []);
  await page.setViewportSize({ width: 390, height: 900 });
  await page.waitForTimeout(200);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) <= 1, "it fits a phone");
  assert.deepEqual(complaints, []);
  await browser.close();
  await server.kill();
});

test("somebody's first cluster, what does not fit, what is ticked, and what cannot be undone", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.evaluate(() => localStorage.setItem("fatflow", 'from = "small-16"\nname = "Mine"\ncluster.gpus = 256\njob.gpus = 256\njob.model = "llama3-70b"\nfabric.tiers = 2\njob.parallel.dp = 128\njob.batch.sequences = 128\n'));
  await page.reload();
  // What has too little memory gets a layout that fits, to click.
  await page.waitForSelector("#problems .remedy");
  assert.match(await page.textContent("#problems"), /a GPU of stage 0 needs/);
  await page.click("#problems .remedy");
  await page.waitForSelector("#problems li.good");
  // Settings are found by words in any order, and by what people call them.
  await page.click("#tab-form");
  for (const [words, key] of [["nics per server", "cluster.nics_per_node"], ["reach model", "job.model"], ["pairs queue", "network.routing.qps"]]) {
    await page.fill("#filter", words);
    assert.equal(await page.locator(`[data-key="${key}"]`).count(), words === "reach model" ? 0 : 1, words);
  }
  await page.fill("#filter", "");
  // Errors of a terminal are told as text.
  const bad = 'from = "small-16"\n[[faults]]\non = "NIC 0"\nat = "1ms"\nwhat = { kind = "flap", period = "500ms", down = "2s" }\n';
  const failed = await run(server.address, { name: "Bad", command: "run", scenarios: [bad] });
  assert.equal(failed.status, "failed");
  await page.goto(`${server.address}/#/run/${failed.id}`);
  await page.reload();
  const told = await page.locator("#view [role=status]").innerText();
  assert.match(told, /down for 2s of every 500ms/);
  assert.match(told, /in scenario\.toml, line \d/);
  assert.doesNotMatch(told, /[╭╰│─]/);
  // A change that is tried offers to be compared with what it was tried from, and ticks nothing.
  const base = await run(server.address, { name: "Base", command: "run", scenarios: ['from = "small-128"\nname = "Base"\n'] });
  await page.goto(`${server.address}/#/run/${base.id}`);
  await page.reload();
  await page.click(".levers button >> nth=0");
  await page.waitForSelector(".with-parent:not([disabled])", { timeout: 60_000 });
  assert.match(await page.textContent(".with-parent"), new RegExp(`Compare with run ${base.id}`));
  await page.click('button:has-text("Copy the link")');
  await page.waitForSelector(".copied");
  await show(page, "#/runs");
  assert.equal(await page.isDisabled("#compare"), true);
  assert.match(await page.textContent("#compare"), /\(0\)/);
  await page.check(`[aria-label="tick run ${base.id}"]`);
  assert.match(await page.textContent("#compare"), /\(1\)/);
  await page.click("#untick");
  assert.match(await page.textContent("#compare"), /\(0\)/);
  // Forgetting is asked twice.
  await page.click(`[aria-label="forget run ${failed.id}"]`);
  assert.equal(await page.locator(`[aria-label="tick run ${failed.id}"]`).count(), 1);
  await page.click(`[aria-label="really forget run ${failed.id}"]`);
  await page.waitForFunction((id) => !document.querySelector(`[aria-label="tick run ${id}"]`), failed.id);
  assert.deepEqual(await serious(page), []);
  await show(page, "#/");
  await page.selectOption("#presets", "own");
  await page.waitForFunction(() => /cluster/.test(document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText));
  await page.waitForSelector("#problems li.good");
  assert.deepEqual(complaints.filter((words) => !words.includes("sandbox")), []);
  await browser.close();
  await server.kill();
});

test("a person logs in with a token, looks, and is shown what others may not do", async () => {
  const place = folder();
  const users = join(place, "team.toml");
  const add = (...words) => fatflow("serve", "--users", users, "--new-user", ...words).trim();
  const [ana, bob] = [add("ana"), add("bob", "--role", "look", "--expires", "2099-01-31")];
  const server = await serve(folder(), "--users", users);
  const { browser, page } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#token");
  assert.deepEqual(await serious(page), [], "the login is accessible");
  await page.fill("#token", "0000000000000000000000");
  await page.click('button:has-text("Log in")');
  await page.waitForSelector("[role=alert]");
  await page.fill("#token", ana);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#problems li.good");
  assert.match(await page.textContent(".who"), /ana/);
  await page.click("#start");
  await page.waitForSelector("#view iframe");
  await show(page, "#/audit");
  await page.waitForFunction(() => /start a run.*done/.test(document.querySelector("#audit")?.textContent ?? ""));
  await page.click('button:has-text("Log out")');
  await page.waitForSelector("#token");
  await page.goto(`${server.address}/?token=${bob}#/runs`);
  await page.waitForSelector("#runs tr");
  assert.doesNotMatch(page.url(), /token/, "the token does not stay in the address");
  assert.equal(await page.locator("#runs button").count(), 0, "who may look has nothing to press");
  assert.doesNotMatch(await page.textContent("nav"), /Scenario|Sweep|Files/);
  await show(page, "#/run/1");
  await page.waitForSelector("#view iframe");
  await browser.close();
  await server.kill();
});
