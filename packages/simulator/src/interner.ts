/**
 * Numbers texts in the order they are first met. Equal numbers mean equal texts: states are compared by such numbers, so
 * that no hash can collide and hide one.
 */
export class Interner {
  readonly #ids = new Map<string, number>();

  id(text: string): number {
    const known = this.#ids.get(text);
    if (known !== undefined) return known;
    const id = this.#ids.size + 1;
    this.#ids.set(text, id);
    return id;
  }
}

/** What the states of one exploration are compared by. */
export class Interners {
  /** Records' bytes and names, models, answers, endings. */
  readonly contents: Interner = new Interner();
  readonly requests: Interner = new Interner();
  #nodes = 0;

  nextNode(): number {
    this.#nodes += 1;
    return this.#nodes;
  }
}

/** One character a byte. */
export function bytesText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}
