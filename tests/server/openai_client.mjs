// The official OpenAI client for JavaScript chats, streams, and reads usage and errors as its typed exceptions.
//
// usage: node openai_client.mjs BASE_URL [KEY]      (npm install openai)
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

// From the folder it was installed in, wherever this file lies.
const from = createRequire(pathToFileURL(path.join(process.cwd(), "x.js")));
const { default: OpenAI } = await import(pathToFileURL(from.resolve("openai")));

const [base, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base + "/v1", apiKey: key ?? "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of Norway?" }];

const model = (await client.models.list()).data[0].id;
const whole = await client.chat.completions.create({ model, messages, max_tokens: 40, temperature: 0 });
assert.equal(whole.choices[0].message.role, "assistant");
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

let text = "", usage = null, finish = null;
const stream = await client.chat.completions.create({ model, messages, max_tokens: 40, temperature: 0, stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(finish, whole.choices[0].finish_reason);
const counts = ({ prompt_tokens_details, ...rest }) => rest;  // the second of two equal prompts may come from the prompt cache
assert.deepEqual(counts(usage), counts(whole.usage));

const final = await client.chat.completions.stream({ model, messages, max_tokens: 40, temperature: 0 }).finalChatCompletion();
assert.equal(final.choices[0].message.content, text);

const legacy = await client.completions.create({ model, prompt: "The capital of Norway is", max_tokens: 8, temperature: 0 });
assert.equal(typeof legacy.choices[0].text, "string");

async function rejects(call, type, fields) {
  await assert.rejects(call, (error) => {
    assert(error instanceof type, `${error.constructor.name} is not ${type.name}`);
    for (const [name, value] of Object.entries(fields)) assert.equal(error[name], value);
    assert(error.requestID);
    return true;
  });
}
const create = (more) => () => client.chat.completions.create({ model, messages, ...more });
await rejects(create({ temperature: 5 }), OpenAI.BadRequestError, { param: "temperature", code: "invalid_value", status: 400 });
await rejects(create({ temperature: 5, stream: true }), OpenAI.BadRequestError, { param: "temperature" });
await rejects(create({ tools: [{ type: "function", function: { name: "f" } }] }), OpenAI.BadRequestError, { param: "tools" });
await rejects(create({ messages: [{ role: "user", content: "word ".repeat(60000) }] }), OpenAI.BadRequestError, { code: "context_length_exceeded" });
await rejects(() => client.models.retrieve("nobody"), OpenAI.NotFoundError, { code: "model_not_found" });
if (key) {
  const wrong = new OpenAI({ baseURL: base + "/v1", apiKey: "wrong", maxRetries: 0 });
  await rejects(() => wrong.models.list(), OpenAI.AuthenticationError, { code: "invalid_api_key", status: 401 });
}
console.log("openai (JavaScript): chat, stream, completions, usage and typed errors as expected");
