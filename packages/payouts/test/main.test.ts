/** The program, as a process of its own. */

import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { days } from "@firstwrite/core";
import { openLedger, sha256Hex } from "@firstwrite/payouts";

import { API_KEY, newKey, send, tenEuros } from "./service.ts";

const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const node = [
  ...process.execArgv.filter((arg) => arg.startsWith("--conditions")),
  "--conditions=@firstwrite/source",
  main,
];

interface Ran {
  readonly code: number;
  readonly output: string;
}

async function run(env: Readonly<Record<string, string>>, ...args: string[]): Promise<Ran> {
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [...node, ...args], {
      timeout: 15_000,
      env: { ...process.env, ...env },
    });
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    assert.ok(error instanceof Error && "code" in error && "stdout" in error && "stderr" in error);
    return { code: Number(error.code), output: `${String(error.stdout)}${String(error.stderr)}` };
  }
}

class Folder implements AsyncDisposable {
  readonly path: string;
  static async make(): Promise<Folder> {
    const folder = new Folder(await mkdtemp(join(tmpdir(), "firstwrite-payouts-main-")));
    await writeFile(folder.merchants, JSON.stringify([{ id: "acme", apiKeySha256: sha256Hex(API_KEY) }]));
    return folder;
  }
  private constructor(path: string) {
    this.path = path;
  }
  get merchants(): string {
    return join(this.path, "merchants.json");
  }
  get store(): string {
    return `sqlite:${join(this.path, "store.db")}`;
  }
  get ledger(): string {
    return `sqlite:${join(this.path, "ledger.db")}`;
  }
  get places(): string[] {
    return ["--store", this.store, "--ledger", this.ledger];
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

/** The first line that `pattern` matches, of what a process prints. */
async function lineOf(process: ChildProcessWithoutNullStreams, pattern: RegExp): Promise<RegExpExecArray> {
  const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>();
  const printed: string[] = [];
  for (const stream of [process.stdout, process.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      printed.push(line);
      const match = pattern.exec(line);
      if (match !== null) resolve(match);
    });
  }
  process.once("close", () => reject(new Error(`it ended: ${printed.join("\n")}`)));
  return promise;
}

describe("payouts", function () {
  this.timeout(30_000);

  it("serve pays, and ends cleanly when it is asked to", async () => {
    await using folder = await Folder.make();
    const ledger = await openLedger(folder.ledger);
    await ledger.fund("acme", "EUR", 100_00, "opening");
    await ledger.putDestination("acct_1", "EUR", "open");
    await ledger.close();
    const service = spawn(process.execPath, [
      ...node,
      "serve",
      ...folder.places,
      "--merchants",
      folder.merchants,
      "--port",
      "0",
    ]);
    const [, url = ""] = await lineOf(service, /listening on (\S+)/);
    const reply = await send(`${url}/v1/payouts`, {
      method: "POST",
      body: JSON.stringify(tenEuros),
      headers: { "idempotency-key": `"${newKey()}"` },
    });
    assert.equal(reply.status, 201, reply.text);
    service.kill("SIGTERM");
    assert.deepEqual(await once(service, "exit"), [0, null]);

    const looked = await run({}, "reconcile", ...folder.places);
    assert.equal(looked.code, 0, looked.output);
    assert.match(looked.output, /^0 unresolved operations and 1 payouts looked at; 0 unreadable$/m);
  });

  it("demo prints three commands that do what they say", async () => {
    await using folder = await Folder.make();
    const demo = spawn(process.execPath, [...node, "demo", "--folder", join(folder.path, "demo"), "--port", "0"]);
    const lines: string[] = [];
    createInterface({ input: demo.stdout }).on("line", (line) => lines.push(line));
    await lineOf(demo, /^# retry with another/);
    while (lines.filter((line) => line.startsWith("curl")).length < 3) await once(demo.stdout, "data");
    const statuses: (string | undefined)[] = [];
    for (const command of lines.filter((line) => line.startsWith("curl"))) {
      const { stdout } = await promisify(execFile)("sh", ["-c", command]);
      statuses.push(/^HTTP\/1.1 (\d+)/.exec(stdout)?.[1]);
    }
    assert.deepEqual(statuses, ["201", "201", "422"]);
    demo.kill("SIGINT");
    assert.deepEqual(await once(demo, "exit"), [0, null]);
  });

  const places = ["--store", "memory:", "--ledger", "sqlite:unused.db"];
  const wrong: readonly [title: string, args: readonly string[], why: RegExp][] = [
    ["no store", ["serve", "--ledger", "sqlite:x", "--merchants", "x"], /--store/],
    [
      "a store that is none",
      ["reconcile", "--store", "redis:x", "--ledger", "sqlite:x"],
      /the URL begins with none of/,
    ],
    ["keys in memory", ["reconcile", "--store", "memory:", "--ledger", "sqlite:x"], /^memory: forgets every key/],
    [
      "a ledger in memory",
      ["reconcile", "--store", "sqlite::memory:", "--ledger", "sqlite::memory:"],
      /forgets every payout/,
    ],
    [
      "a file of merchants that is not there",
      ["serve", ...places, "--merchants", "none.json"],
      /cannot be read \(ENOENT\)/,
    ],
    ["a folder of merchants", ["serve", ...places, "--merchants", "."], /--merchants .* cannot be read \(EISDIR\)/],
    ["a port that is none", ["serve", ...places, "--merchants", "x", "--port", "http"], /it must be a number/],
    ["an option that is unknown", ["serve", ...places, "--merchants", "x", "--marchents", "x"], /unknown option/],
  ];
  for (const [title, args, why] of wrong) {
    it(`says what to write for ${title}, with exit code 2`, async () => {
      const { code, output } = await run({}, ...args);
      assert.equal(code, 2, output);
      assert.match(output, why);
      assert.ok(!/\n\s+at /.test(output), output);
    });
  }

  it("says what to write for a port that is taken, with exit code 2", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const address = other.address();
    assert.ok(typeof address === "object" && address !== null);
    await using folder = await Folder.make();
    const line = ["serve", ...folder.places, "--merchants", folder.merchants, "--port", String(address.port)];
    const { code, output } = await run({}, ...line);
    other.close();
    assert.equal(code, 2, output);
    assert.match(output, /^cannot listen there \(EADDRINUSE\): give another --port or --host$/m);
    assert.ok(!/\n\s+at /.test(output), output);
  });

  it("takes its options from the environment, refuses what is wrong there, and prints none of it", async () => {
    const wrong = await run(
      { PAYOUTS_PORT: "http", PAYOUTS_LEDGER: "sqlite:x", PAYOUTS_STORE: "memory:" },
      "serve",
      "--merchants",
      "x",
    );
    assert.equal(wrong.code, 2, wrong.output);
    assert.match(wrong.output, /PAYOUTS_PORT.*it must be a number/);
    const help = await run({ PAYOUTS_LEDGER: "postgres://u:sk_secret@host/db" }, "serve", "--help");
    assert.equal(help.code, 0);
    assert.ok(!help.output.includes("sk_secret"), help.output);
    for (const [command, count] of [
      ["serve", 13],
      ["reconcile", 4],
    ] as const) {
      const { output } = await run({}, command, "--help");
      const options = output.match(/^ {2}--[a-z-]+/gm) ?? [];
      assert.equal(options.length, count, output);
      for (const option of options) {
        const name = option.trim().slice(2).replaceAll("-", "_").toUpperCase();
        assert.ok(output.replaceAll(/\s+/g, " ").includes(`env: PAYOUTS_${name})`), `${name}: ${output}`);
      }
    }
  });

  const numbers: readonly [title: string, args: readonly string[], why: RegExp][] = [
    ["a retention that contradicts itself", ["--ttl-days", "10", "--audit-days", "90"], new RegExp(`${days(91)}`)],
    ["no time for retries", ["--client-retry-days", "0"], /clientRetryMs is 0/],
    ["a lease that is too short", ["--lease-ms", "10"], /leaseMs is 10: give 5000/],
    ["a wait that is longer than the request", ["--wait-ms", "9", "--budget-ms", "9"], /more milliseconds than waitMs/],
  ];
  for (const [title, args, why] of numbers) {
    it(`refuses ${title} before the store or the ledger is opened`, async () => {
      await using folder = await Folder.make();
      const { code, output } = await run(
        {},
        "serve",
        ...folder.places,
        "--merchants",
        folder.merchants,
        "--port",
        "0",
        ...args,
      );
      assert.equal(code, 2, output);
      assert.match(output, why);
      assert.deepEqual(await readdir(folder.path), ["merchants.json"]);
    });
  }

  const merchants: readonly [title: string, text: string, why: RegExp][] = [
    ["is not JSON", "[", /must be JSON/],
    ["is empty", "[]", /there must be merchants/],
    ["has a key itself", '[{"id":"a","apiKey":"sk_secret"}]', /a merchant cannot have "apiKey"/],
    ["has a hash that is none", '[{"id":"a","apiKeySha256":"sk_secret"}]', /must be the SHA-256/],
    [
      "has a short secret",
      `[{"id":"a","apiKeySha256":"${"0".repeat(64)}","signingSecret":"sk_secret"}]`,
      /16 characters/,
    ],
    [
      "has a merchant twice",
      `[${[1, 2].map((n) => `{"id":"a","apiKeySha256":"${String(n).repeat(64)}"}`).join(",")}]`,
      /twice/,
    ],
  ];
  for (const [title, text, why] of merchants) {
    it(`refuses a file of merchants that ${title}`, async () => {
      await using folder = await Folder.make();
      await writeFile(folder.merchants, text);
      const { code, output } = await run({}, "serve", ...folder.places, "--merchants", folder.merchants);
      assert.equal(code, 2, output);
      assert.match(output, why);
      assert.ok(!output.includes("sk_secret"), output);
    });
  }
});
