/** A mark that survives two installed copies of this package, which `instanceof` does not. */
export interface ErrorBrand {
  /** Marks the error, and names it after the brand. */
  mark(error: Error): void;
  has(x: unknown): boolean;
}

export function brandedError(name: string): ErrorBrand {
  const symbol = Symbol.for(`firstwrite.${name}`);
  return {
    mark(error) {
      Object.defineProperty(error, symbol, { value: true });
      Object.defineProperty(error, "name", { value: name, configurable: true, writable: true });
    },
    has: (x) => typeof x === "object" && x !== null && symbol in x,
  };
}
