import type { Case } from "./cases.ts";
export const peers: readonly Case[] = [];
