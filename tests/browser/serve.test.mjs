// `fatflow serve` as people use it: run, mistakes in place, stop, compare, a kill and a restart.
import test from "node:test";
import assert from "node:assert/strict";
import { folder, open, serious, serve } from "./common.mjs";

// As somebody pastes it: what a browser inserts itself has styles that the page's policy refuses.
const write = async (page, text) => {
  await page.click(".cm-content");
  await page.keyboard.press("Control+a");
  await page.locator(".cm-content").evaluate((content, text) => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    content.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  }, text);
};
const read = (page) => page.evaluate(() => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText);

test("a scenario runs end to end, mistakes show in place, runs survive a kill", async () => {
  const workspace = folder();
  let server = await serve(workspace);
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#problems li.good");

  await write(page, 'from = "small-16"\nname = "First"\n\n[cluster]\ngpuz = 16\n');
  await page.waitForSelector("#problems li:not(.good)");
  assert.match(await page.textContent("#problems"), /line 5.*gpuz/s);
  assert.equal(await page.textContent(".cm-lintRange-error"), "gpuz", "the word itself is underlined");
  assert.equal(await page.isDisabled("#start"), true);

  await write(page, 'from = "small-16"\nname = "First"\n');
  await page.waitForSelector("#problems li.good");
  await page.click("#start");
  await page.waitForSelector("#view iframe");
  assert.match(page.url(), /#\/run\/1$/, "a run has an address of its own");
  const width = await page.evaluate(() => document.querySelector("#view iframe").clientWidth);
  assert.ok(width > 1100, `the result has the width of the page (${width})`);

  await page.click('nav a:has-text("Scenario")');
  await page.click("#tab-form");
  const seed = page.locator('input[data-key="seed"]');
  await seed.fill("7");
  await seed.press("Enter");
  await page.click("#tab-text");
  await page.waitForFunction(() => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText.includes("seed = 7"));
  assert.deepEqual(complaints.filter((text) => !text.includes("sandbox")), []);

  await page.waitForSelector("#problems li.good");
  await page.click("#start");
  await page.waitForSelector("#view iframe");
  await page.click('nav a:has-text("Runs")');
  await page.waitForFunction(() => document.querySelector("#runs")?.textContent.match(/done in/g)?.length === 2);
  const cells = await page.textContent("#runs tr:first-child");
  assert.match(cells, /\d s|\d ms/, "the table shows the step");
  assert.match(cells, /\d %/, "and the MFU");
  for (const format of ["JSON", "report"]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(`#runs tr:last-child a:has-text("${format}")`)]);
    assert.match(download.suggestedFilename(), /^fatflow-1/);
  }
  await page.click('th button:has-text("#")');
  assert.equal(await page.textContent("#runs tr:first-child td:nth-child(2)"), "1", "sorted by number");
  await page.fill('[aria-label="note of run 1"]', "the base");
  await page.press('[aria-label="note of run 1"]', "Enter");
  await page.waitForTimeout(300);
  await page.fill('[aria-label="find a run"]', "the base");
  assert.equal(await page.locator("#runs tr").count(), 1, "a note is found");
  await page.fill('[aria-label="find a run"]', "");
  assert.deepEqual(await serious(page), [], "axe finds nothing serious in a table of runs");

  for (const box of await page.$$("#runs input[type=checkbox]")) await box.check();
  await page.click("#beside");
  await page.waitForSelector("#view iframe >> nth=1");
  assert.equal(await page.locator("#view iframe").count(), 2, "two runs stand beside each other");
  await page.click('nav a:has-text("Runs")');
  await page.click("#compare");
  await page.waitForSelector("#view iframe");
  assert.match(page.url(), /#\/run\/3$/);
  await page.setViewportSize({ width: 390, height: 900 });
  for (const hash of ["#/", "#/runs", "#/run/1"]) {
    await page.evaluate((hash) => { location.hash = hash; }, hash);
    await page.waitForTimeout(200);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 1, `nothing sticks out of a phone on ${hash} (${overflow})`);
  }

  await server.kill();
  server = await serve(workspace);
  await page.goto(`${server.address}/#/runs`);
  await page.waitForFunction(() => document.querySelector("#runs")?.textContent.includes("First"));
  assert.equal(await page.inputValue('[aria-label="note of run 1"]'), "the base", "notes are kept");
  await browser.close();
  await server.kill();
});

test("what is typed faster than the page answers stays as it was typed", async () => {
  const server = await serve(folder());
  const { browser, page } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#problems li.good");
  await write(page, 'from = "small-16"\n\n');
  for (const line of ["seed = 1234567", 'name = "typed', "# and a comment that nobody waits for"]) {
    await page.keyboard.press("Control+End");
    await page.keyboard.type(line, { delay: 0 });
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+End");
    await page.keyboard.press("Enter");
  }
  await page.waitForSelector("#problems li.good");
  assert.match(await read(page), /seed = 1234567\n+name = "typed"\n+# and a comment that nobody waits for/);
  await browser.close();
  await server.kill();
});

test("keys complete and explain themselves, the keyboard reaches everything, axe finds nothing serious", async () => {
  const server = await serve(folder());
  const { browser, page } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#problems li.good");
  await write(page, 'from = "small-16"\n[network.routing]\npol');
  await page.keyboard.press("Control+End");
  await page.keyboard.press("Control+Space");
  await page.waitForSelector(".cm-tooltip-autocomplete");
  assert.match(await page.textContent(".cm-tooltip-autocomplete"), /policy/);
  // What has only just appeared is not taken by a key that was meant for something else.
  await page.waitForTimeout(200);
  await page.keyboard.press("Enter");
  await page.keyboard.type('"');
  await page.keyboard.press("Control+Space");
  await page.waitForSelector(".cm-tooltip-autocomplete");
  assert.match(await page.textContent(".cm-tooltip-autocomplete"), /e-ecmp/);
  await page.keyboard.press("Escape");
  assert.match(await read(page), /policy = "/);
  await write(page, 'from = "small-16"\n[network.routing]\nqps = 4\n');
  await page.waitForSelector("#problems li.good");
  await page.hover(".cm-line:nth-child(3) >> text=qps");
  await page.waitForSelector(".cm-tooltip .help");
  assert.match(await page.textContent(".cm-tooltip .help"), /network\.routing\.qps.*[Qq]ueue pairs/s);
  // What is unwise is said with what is wrong; a text that scrolls is reached by the keyboard.
  await write(page, `from = "small-16"\n[fabric]\nradix = 512\nleaf = { switch = "spectrum-4" }\n${"# more\n".repeat(60)}`);
  await page.waitForSelector("#problems li.warning");
  assert.match(await page.textContent("#problems li.warning"), /Warning: .*radix.* is 512.*128 ports/);
  for (const hash of ["#/", "#/runs"]) {
    await page.evaluate((hash) => { location.hash = hash; }, hash);
    await page.waitForTimeout(200);
    const found = await serious(page);
    assert.deepEqual(found, [], hash);
  }
  await browser.close();
  await server.kill();
});

test("advice is a button with progress, and a click opens the changed scenario", async () => {
  const server = await serve(folder());
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await write(page, `name = "To advise"
from = "small-16"
[network.routing]
policy = "ecmp"
qps = 1
`);
  await page.waitForSelector("#problems li.good");
  await page.click("#advise");
  await page.waitForSelector("#view progress", { timeout: 60_000 });
  // A fast machine may be done before the page asks again how far it is.
  await page.waitForFunction(() => document.querySelector("#advised button") || /tried \d+ of \d+ changes/.test(document.querySelector("#view [role=status]")?.textContent ?? ""), null, { timeout: 120_000 });
  await page.waitForSelector("#advised button", { timeout: 180_000 });
  await page.waitForSelector("#view iframe");
  const first = page.locator("#advised button").first();
  assert.match(await first.textContent(), /\d %/, "what it gains stands beside it");
  const [key, value] = (await first.getAttribute("title")).split("\n")[0].split("=");
  assert.deepEqual(await serious(page), [], "axe finds nothing serious in an advice");
  await first.click();
  await page.waitForSelector("#problems li.good");
  const text = await read(page);
  assert.match(text, /To advise/);
  const word = value.replaceAll('"', "").split(/[\[\], ]+/).filter(Boolean).pop() ?? "";
  assert.ok(text.includes(key.split(".").pop()) && text.includes(word), `${key} = ${value} in ${text}`);
  assert.deepEqual(complaints.filter((text) => !text.includes("sandbox")), []);
  await browser.close();
  await server.kill();
});

test("a long run can be stopped", async () => {
  const server = await serve(folder());
  const { browser, page } = await open();
  await page.goto(server.address);
  // Packets of a minute or more: long enough to be stopped, short enough not to be refused.
  const long = `name = "long"
[cluster]
gpus = 128
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 8
[traffic]
pattern = "permutation"
bytes = "4GiB"
`;
  await write(page, long);
  await page.waitForSelector("#problems li.good");
  await page.selectOption("#engine", "packet");
  await page.click("#start");
  await page.click('nav a:has-text("Runs")');
  await page.waitForFunction(() => /running.*\d+ s: .*events/s.test(document.querySelector("#runs")?.textContent ?? ""), null, { timeout: 60_000 });
  // The table is drawn anew while it runs.
  await page.type('[aria-label="note of run 1"]', "a slow note", { delay: 140 });
  await page.keyboard.press("Enter");
  assert.equal(await page.inputValue('[aria-label="note of run 1"]'), "a slow note", "is not lost");
  await page.click("#runs button:has-text('Stop')");
  await page.waitForFunction(() => /stopped/.test(document.querySelector("#runs")?.textContent ?? ""));
  await browser.close();
  await server.kill();
});
