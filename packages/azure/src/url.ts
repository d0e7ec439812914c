import { BlobServiceClient, ContainerClient, StorageSharedKeyCredential } from "@azure/storage-blob";
import { parseStoreUrl, StoreError, type ConditionalStore } from "@firstwrite/core";

import { AzureStore } from "./azure-store.ts";

/**
 * Opens `azblob://account/container/prefix`, with these options after `?`:
 * - `endpoint`: of the account's blob service, where that is not `https://ACCOUNT.blob.core.windows.net`: another cloud,
 *   a domain of one's own, an emulator (`http://127.0.0.1:10000/devstoreaccount1`);
 * - `checksums=none`: see `AzureStoreOptions`.
 *
 * Credentials are never in the URL. The first of these is taken, by the names that Microsoft's own command line gives
 * them: `AZURE_STORAGE_CONNECTION_STRING`, which must be of the URL's account; `AZURE_STORAGE_KEY`;
 * `AZURE_STORAGE_SAS_TOKEN`; else what `DefaultAzureCredential` of `@azure/identity` finds, which is loaded only then.
 *
 * @throws {StoreError} `INVALID_ARGUMENT`, without a secret in the message or the cause.
 */
export async function openUrl(url: string): Promise<ConditionalStore> {
  const { authority: account, path, options } = parseStoreUrl(url, ["endpoint", "checksums"]);
  const [container = "", ...segments] = path.split("/");
  // Also keeps out the read-only secondary, ACCOUNT-secondary, which answers late.
  if (!/^[a-z0-9]{3,24}$/.test(account))
    throw refuse("the URL's account must be 3 to 24 lower-case letters and digits");
  if (!/^[a-z0-9](-?[a-z0-9]){2,62}$/.test(container)) throw refuse("the URL has no container that can be one");
  const checksums = options.get("checksums");
  if (checksums !== undefined && checksums !== "none" && checksums !== "md5") {
    throw refuse("the option checksums must be md5 or none");
  }
  const endpoint = options.get("endpoint");
  if (endpoint !== undefined && !/^https?:\/\/[^/@?#]+(\/[^/@?#]+)?\/?$/.test(endpoint)) {
    throw refuse("the option endpoint must be https://host or http://host:port/account");
  }
  return new AzureStore({
    container: await containerClient(account, container, endpoint?.replace(/\/$/, "")),
    prefix: segments.join("/"),
    checksums,
  });
}

async function containerClient(
  account: string,
  container: string,
  endpoint: string | undefined,
): Promise<ContainerClient> {
  const address = `${endpoint ?? `https://${account}.blob.core.windows.net`}/${container}`;
  const { AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN } = process.env;
  if (isSet(AZURE_STORAGE_CONNECTION_STRING)) {
    const service = readConnectionString(AZURE_STORAGE_CONNECTION_STRING);
    if (service.accountName !== account) {
      throw refuse(
        `AZURE_STORAGE_CONNECTION_STRING is of the account ${service.accountName}, and the URL of ${account}`,
      );
    }
    if (endpoint === undefined) return service.getContainerClient(container);
    return new ContainerClient(address + new URL(service.url).search, service.credential);
  }
  if (isSet(AZURE_STORAGE_KEY)) {
    return new ContainerClient(address, new StorageSharedKeyCredential(account, AZURE_STORAGE_KEY));
  }
  if (isSet(AZURE_STORAGE_SAS_TOKEN)) {
    return new ContainerClient(`${address}?${AZURE_STORAGE_SAS_TOKEN.replace(/^\?/, "")}`);
  }
  return new ContainerClient(address, await defaultCredential());
}

function isSet(value: string | undefined): value is string {
  return value !== undefined && value !== "";
}

function readConnectionString(text: string): BlobServiceClient {
  try {
    return BlobServiceClient.fromConnectionString(text);
  } catch {
    // Without the cause: the SDK's words may hold a part of the text, and that the key.
    throw refuse("AZURE_STORAGE_CONNECTION_STRING cannot be read");
  }
}

async function defaultCredential(): Promise<ContainerClient["credential"]> {
  try {
    const { DefaultAzureCredential } = await import("@azure/identity");
    return new DefaultAzureCredential();
  } catch (error) {
    const missing = error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND";
    if (!missing || !error.message.includes("'@azure/identity'")) throw error;
    const why =
      "there is no AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, and " +
      "DefaultAzureCredential is not installed: npm install @azure/identity";
    throw new StoreError("INVALID_ARGUMENT", "azure", why, { cause: error });
  }
}

function refuse(why: string): StoreError {
  return new StoreError("INVALID_ARGUMENT", "azure", why);
}
