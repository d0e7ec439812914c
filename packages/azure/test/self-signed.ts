/** A key and a certificate for 127.0.0.1, made when a test asks, so that no private key is kept anywhere. */

import { generateKeyPairSync, sign } from "node:crypto";

export interface SelfSigned {
  readonly key: string;
  readonly cert: string;
}

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;

/** X.509 version 3 in DER: RFC 5280, 4.1. */
export function selfSigned(): SelfSigned {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const ecdsaWithSha256 = der(SEQUENCE, Buffer.from("06082a8648ce3d040302", "hex"));
  const commonName = der(SEQUENCE, Buffer.from("0603550403", "hex"), der(UTF8_STRING, Buffer.from("127.0.0.1")));
  const name = der(SEQUENCE, der(SET, commonName));
  const ipAddress = der(0x87, Buffer.of(127, 0, 0, 1));
  const alternativeName = der(SEQUENCE, Buffer.from("0603551d11", "hex"), der(OCTET_STRING, der(SEQUENCE, ipAddress)));
  const toBeSigned = der(
    SEQUENCE,
    der(0xa0, der(INTEGER, Buffer.of(2))),
    der(INTEGER, Buffer.of(1)),
    ecdsaWithSha256,
    name,
    der(SEQUENCE, der(UTC_TIME, Buffer.from("200101000000Z")), der(UTC_TIME, Buffer.from("490101000000Z"))),
    name,
    publicKey.export({ format: "der", type: "spki" }),
    der(0xa3, der(SEQUENCE, alternativeName)),
  );
  const signature = der(BIT_STRING, Buffer.of(0), sign("sha256", toBeSigned, privateKey));
  const cert = der(SEQUENCE, toBeSigned, ecdsaWithSha256, signature).toString("base64");
  return {
    key: String(privateKey.export({ format: "pem", type: "pkcs8" })),
    cert: `-----BEGIN CERTIFICATE-----\n${cert}\n-----END CERTIFICATE-----\n`,
  };
}

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const { byteLength } = body;
  const length = byteLength < 0x80 ? [byteLength] : [0x82, byteLength >> 8, byteLength & 0xff];
  return Buffer.concat([Buffer.of(tag, ...length), body]);
}
