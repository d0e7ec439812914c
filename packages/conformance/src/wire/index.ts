export { FaultyProxy, type ProxiedRequest, type ProxyFault } from "./faulty-proxy.ts";
export { ScriptedServer, type Answer, type ReceivedRequest, type Reply } from "./scripted-server.ts";
