export { firstwriteModule, type FirstwriteModuleOptions } from "./firstwrite-module.ts";
export { firstwrite, firstwriteIdentifiers, type FirstwriteIdentifiers } from "./identifiers.ts";
