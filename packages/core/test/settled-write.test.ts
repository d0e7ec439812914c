import assert from "node:assert/strict";
import {
  onEvent,
  settleWrite,
  StoreError,
  StoreSession,
  toVersion,
  type ConditionalStore,
  type SettledWrite,
  type StoredRecord,
  type WriteOutcome,
} from "@firstwrite/core";
import { VirtualClock } from "@firstwrite/memory";
import { bytesOf, ending, isStoreError, returned, threw, type Ending } from "./setup.ts";

const written: WriteOutcome = { kind: "written", version: toVersion("v2"), at: 0 };
const refused: WriteOutcome = { kind: "refused" };
const contended: WriteOutcome = { kind: "contended" };
const unknown: WriteOutcome = { kind: "unknown", cause: new Error("reset") };
const away = new StoreError("UNAVAILABLE", "scripted", "away");
const denied = new StoreError("PERMISSION_DENIED", "scripted", "denied");
const unsupported = new StoreError("UNSUPPORTED", "scripted", "no versions");
/** None of the four kinds: a store that breaks its own type. */
const bogus: WriteOutcome = JSON.parse('{"kind":"ok"}');
const corrupt = new StoreError("CORRUPT", "scripted", "checksum");
const foreignError = new Error("not a StoreError");

const absent = "absent";
/** A read finds our bytes; another's, at another version; another's, at the version a replace expects. */
const ours = "ours";
const other = "other";
const unchanged = "unchanged";

type Answer = WriteOutcome | Error | typeof absent | typeof ours | typeof other | typeof unchanged;
type Step = readonly [operation: "create" | "replace" | "read", answer: Answer];

/** Answers each request as the script says. Which it was is to be compared afterwards: what is thrown here is an answer. */
class ScriptedStore implements ConditionalStore {
  readonly traits = { name: "scripted", nameBytesMax: 1024, recordBytesMax: 1024, clockGranularityMs: 0 };
  readonly written: string[] = [];
  readonly sent: Step[0][] = [];
  #steps: Step[];

  constructor(steps: readonly Step[]) {
    this.#steps = [...steps];
  }

  get left(): number {
    return this.#steps.length;
  }

  async create(_name: string, bytes: Uint8Array): Promise<WriteOutcome> {
    return this.#write("create", bytes);
  }

  async replace(_name: string, expected: string, bytes: Uint8Array): Promise<WriteOutcome> {
    assert.equal(expected, "v1");
    return this.#write("replace", bytes);
  }

  async read(): Promise<StoredRecord | undefined> {
    const answer = this.#next("read");
    if (answer === absent) return undefined;
    assert.ok(typeof answer === "string", "a read's answer");
    const version = toVersion(answer === unchanged ? "v1" : "v7");
    return { bytes: bytesOf(answer === ours ? "mine" : "theirs"), version, modifiedAt: 1000, readAt: 4000 };
  }

  #write(operation: "create" | "replace", bytes: Uint8Array): WriteOutcome {
    this.written.push(Buffer.from(bytes).toString());
    const answer = this.#next(operation);
    assert.ok(typeof answer !== "string", "a write's answer");
    return answer;
  }

  #next(operation: Step[0]): Exclude<Answer, Error> {
    this.sent.push(operation);
    const [, answer] = this.#steps.shift() ?? [];
    assert.ok(answer !== undefined, "the script is over");
    if (answer instanceof Error) throw answer;
    return answer;
  }
}

async function settleOn(store: ConditionalStore, replace: boolean, deadlineMs = 600_000) {
  const clock = new VirtualClock();
  const end = new AbortController();
  clock.setTimer(deadlineMs, () => end.abort());
  const session = new StoreSession(store, {
    runtime: clock,
    life: { signal: end.signal, endsAtMs: deadlineMs },
    requestTimeoutMs: 1000,
  });
  const write = settleWrite(session, {
    name: "n",
    expected: replace ? toVersion("v1") : undefined,
    bytes: bytesOf("mine"),
    inspect: ({ bytes }) => {
      const seen = Buffer.from(bytes).toString();
      return { ours: seen === "mine", seen };
    },
  });
  return { end: await ending(clock, write), clock };
}

type Result = "mine, as answered" | "mine, as read" | "other" | "absent" | Error;

const create: readonly [title: string, steps: readonly Step[], result: Result][] = [
  ["written", [["create", written]], "mine, as answered"],
  [
    "case 5: refused by a foreign record",
    [
      ["create", refused],
      ["read", other],
    ],
    "other",
  ],
  [
    "case 6: a record without our write ID is no proof of our write",
    [
      ["create", unknown],
      ["read", other],
    ],
    "other",
  ],
  [
    "case 1: reply lost, the record is ours (U1)",
    [
      ["create", unknown],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 1: refused, and the record is ours after all (U1)",
    [
      ["create", refused],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 1: the repeat is refused by our own first copy",
    [
      ["create", unknown],
      ["read", absent],
      ["create", refused],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 10: a 5xx after the commit is as a lost reply",
    [
      ["create", foreignError],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "the request was lost: the same bytes again (U3)",
    [
      ["create", unknown],
      ["read", absent],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "case 7: the read-back fails: still unknown, never lost (U4)",
    [
      ["create", unknown],
      ["read", away],
      ["read", foreignError],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 7: the read-back is denied",
    [
      ["create", unknown],
      ["read", denied],
    ],
    denied,
  ],
  [
    "refused and then removed: nothing of ours is under way",
    [
      ["create", refused],
      ["read", absent],
    ],
    "absent",
  ],
  [
    "case 11: 409, nothing landed: again, not exists",
    [
      ["create", contended],
      ["read", absent],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "case 13: 409, then exists",
    [
      ["create", contended],
      ["read", absent],
      ["create", refused],
      ["read", other],
    ],
    "other",
  ],
  [
    "case 13: 409 while another's create lands",
    [
      ["create", contended],
      ["read", other],
    ],
    "other",
  ],
  [
    "case 20: 429 again and again is neither fatal nor exists",
    [
      ...Array.from({ length: 9 }, (): Step[] => [
        ["create", contended],
        ["read", absent],
      ]).flat(),
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "not sent: the same again, without a read",
    [
      ["create", away],
      ["create", away],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "a write's checksum is refused: the same again",
    [
      ["create", corrupt],
      ["create", written],
    ],
    "mine, as answered",
  ],
  ["denied", [["create", denied]], denied],
  ["unsupported", [["create", unsupported]], unsupported],
  [
    "the read-back is unsupported: no later one will be better",
    [
      ["create", unknown],
      ["read", unsupported],
    ],
    unsupported,
  ],
  [
    "an answer that is none of the four is unknown, whatever later copies are told",
    [
      ["create", bogus],
      ["read", absent],
      ["create", refused],
      ["read", absent],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "unknown, then contended: still unknown (U3)",
    [
      ["create", unknown],
      ["read", absent],
      ["create", contended],
      ["read", absent],
      ["create", refused],
      ["read", absent],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "unknown, then rejected: still unknown (U3)",
    [
      ["create", unknown],
      ["read", absent],
      ["create", away],
      ["read", absent],
      ["create", refused],
      ["read", absent],
      ["create", refused],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "unknown, then refused and absent: a copy may be under way (U3)",
    [
      ["create", unknown],
      ["read", absent],
      ["create", refused],
      ["read", absent],
      ["create", written],
    ],
    "mine, as answered",
  ],
  [
    "contended, then refused and absent: nothing is under way",
    [
      ["create", contended],
      ["read", absent],
      ["create", refused],
      ["read", absent],
    ],
    "absent",
  ],
  [
    "P3: a checksum that does not fit is read again",
    [
      ["create", unknown],
      ["read", corrupt],
      ["read", corrupt],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "P3: and is CORRUPT when it stays",
    [
      ["create", unknown],
      ["read", corrupt],
      ["read", corrupt],
      ["read", corrupt],
    ],
    corrupt,
  ],
];

const replace: readonly [title: string, steps: readonly Step[], result: Result][] = [
  ["written", [["replace", written]], "mine, as answered"],
  [
    "case 4: reply lost, own record: ours, at its fresh version",
    [
      ["replace", unknown],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 4: the repeat is refused by our own first copy",
    [
      ["replace", unknown],
      ["read", unchanged],
      ["replace", refused],
      ["read", ours],
    ],
    "mine, as read",
  ],
  [
    "case 5: a foreign record is not masked",
    [
      ["replace", refused],
      ["read", other],
    ],
    "other",
  ],
  [
    "case 47: overtaken while the answer was unknown",
    [
      ["replace", unknown],
      ["read", other],
    ],
    "other",
  ],
  [
    "still at expected after unknown is no proof: again (U3)",
    [
      ["replace", unknown],
      ["read", unchanged],
      ["replace", written],
    ],
    "mine, as answered",
  ],
  [
    "unknown, then contended, then refused at expected: still unknown (U3)",
    [
      ["replace", unknown],
      ["read", unchanged],
      ["replace", contended],
      ["read", unchanged],
      ["replace", refused],
      ["read", unchanged],
      ["replace", written],
    ],
    "mine, as answered",
  ],
  [
    "unknown, then gone: it can no longer land (U3)",
    [
      ["replace", unknown],
      ["read", absent],
    ],
    "absent",
  ],
  [
    "case 15: refused, and gone",
    [
      ["replace", refused],
      ["read", absent],
    ],
    "absent",
  ],
  [
    "refused by a record that a read still shows at expected: whoever asked decides",
    [
      ["replace", refused],
      ["read", unchanged],
    ],
    "other",
  ],
  [
    "case 12: 409: read, then again",
    [
      ["replace", contended],
      ["read", unchanged],
      ["replace", written],
    ],
    "mine, as answered",
  ],
  [
    "case 12: 409, and another won",
    [
      ["replace", contended],
      ["read", other],
    ],
    "other",
  ],
  [
    "not sent: the same again, without a read",
    [
      ["replace", away],
      ["replace", written],
    ],
    "mine, as answered",
  ],
];

function resultOf(end: Ending<SettledWrite<string>>): Result {
  if (end.kind === "threw") {
    assert.ok(end.error instanceof Error);
    return end.error;
  }
  if (end.value.kind !== "mine") return end.value.kind;
  assert.equal(
    end.value.version,
    end.value.seen === undefined ? "v2" : "v7",
    "the version of the record that is there",
  );
  assert.equal(end.value.at, end.value.seen === undefined ? 0 : 1000, "when it was written");
  assert.equal(end.value.ageMs, end.value.seen === undefined ? 0 : 3000, "its age by the store's clock");
  return end.value.seen === undefined ? "mine, as answered" : "mine, as read";
}

for (const [operation, table] of [
  ["create", create],
  ["replace", replace],
] as const) {
  describe(`a settled ${operation} (protocol §4)`, () => {
    for (const [title, steps, result] of table) {
      it(title, async () => {
        const store = new ScriptedStore(steps);
        const resolved: boolean[] = [];
        const stop = onEvent("firstwrite:unknown-resolved", ({ mine }) => resolved.push(mine));
        const { end } = await settleOn(store, operation === "replace");
        stop();
        assert.equal(resultOf(end), result);
        const script = steps.map(([request]) => request);
        assert.deepEqual(store.sent, script, "the requests of the script, and no other");
        assert.ok(
          store.written.every((bytes) => bytes === "mine"),
          "every copy has the same bytes",
        );
        const wasUnknown = steps.some(
          ([, answer]) => answer === unknown || answer === bogus || answer === foreignError,
        );
        const found = typeof result === "string";
        assert.deepEqual(
          resolved,
          wasUnknown && found ? [result.startsWith("mine")] : [],
          "firstwrite:unknown-resolved",
        );
      });
    }
  });
}

describe("a settled write against time", () => {
  it("is never older, by what it says, than its record (asOfMs is before the sending)", async () => {
    const steps: readonly Step[] = [
      ["create", away],
      ["create", unknown],
      ["read", absent],
      ["create", written],
    ];
    const { end, clock } = await settleOn(new ScriptedStore(steps), false);
    const settled = returned(end);
    assert.ok(settled.kind === "mine");
    assert.equal(settled.asOfMs, clock.monotonicMs());
  });

  it("is as of the sending of the request that answered, however long the answer took", async () => {
    const clock = new VirtualClock();
    const slowly = async <Answer>(answer: Answer): Promise<Answer> => {
      await clock.advance(700);
      return answer;
    };
    for (const [answers, asOfMs] of [
      [[written], 0],
      [[refused], 700],
    ] as const) {
      const script = new ScriptedStore([
        ["create", answers[0]],
        ["read", ours],
      ]);
      const store: ConditionalStore = {
        traits: script.traits,
        create: async (name, bytes) => slowly(await script.create(name, bytes)),
        replace: async () => refused,
        read: async () => slowly(await script.read()),
      };
      const startedAtMs = clock.monotonicMs();
      const session = new StoreSession(store, {
        runtime: clock,
        life: { signal: new AbortController().signal, endsAtMs: Infinity },
        requestTimeoutMs: 1000,
      });
      const settled = await settleWrite(session, {
        name: "n",
        bytes: bytesOf("mine"),
        inspect: () => ({ ours: true, seen: undefined }),
      });
      assert.ok(settled.kind === "mine");
      assert.equal(settled.asOfMs - startedAtMs, asOfMs);
    }
  });

  it("waits between repeats: a store that never decides is not hammered", async () => {
    for (const [operation, answer, found] of [
      ["create", unknown, absent],
      ["create", contended, absent],
      ["create", away, absent],
      // Only while a copy may be under way.
      ["create", refused, absent],
      ["replace", refused, unchanged],
      ["replace", unknown, unchanged],
      ["replace", contended, unchanged],
    ] as const) {
      const steps = Array.from({ length: 500 }, (): Step[] =>
        answer === away
          ? [[operation, answer]]
          : [
              [operation, answer],
              ["read", found],
            ],
      ).flat();
      const lost: Step[] = [
        [operation, unknown],
        ["read", found],
      ];
      const store = new ScriptedStore(answer === refused ? [...lost, ...steps] : steps);
      const { end } = await settleOn(store, operation === "replace", 60_000);
      assert.ok(String(threw(end)).includes("the deadline passed"), String(threw(end)));
      // Full jitter under a ceiling of two seconds: about one round a second.
      assert.ok(store.written.length > 20 && store.written.length < 150, `${store.written.length} writes in a minute`);
    }
  });

  it("a read that keeps failing is sent with backoff until the session ends, and then says why", async () => {
    const steps: readonly Step[] = [["create", unknown], ...Array.from({ length: 500 }, (): Step => ["read", away])];
    const store = new ScriptedStore(steps);
    const { end } = await settleOn(store, false, 60_000);
    const error = threw(end);
    assert.ok(error instanceof Error && "trouble" in error);
    isStoreError(error.trouble, "UNAVAILABLE");
    assert.ok(store.left > 350, "not hammered");
  });
});
