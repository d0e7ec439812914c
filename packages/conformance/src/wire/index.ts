export { ScriptedServer, type Answer, type ReceivedRequest, type Reply } from "./scripted-server.ts";
