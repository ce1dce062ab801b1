// OpenAI's library for Node. It reads the name of a case in each line, and writes what it got as JSON, like lines.py.
const { OpenAI } = require("openai");

const client = new OpenAI();
const model = process.env.MODEL;
const messages = [{ role: "user", content: "Hello" }];
const text = { type: "string", description: "A city." };
const city = { type: "object", properties: { city: text }, required: ["city"], additionalProperties: false };
const place = { ...city, properties: { city: text, people: { type: "integer" } }, required: ["city", "people"] };
const tools = [{ type: "function", function: { name: "weather", description: "The weather of a city.", parameters: city } }];
const usageOf = (usage) => [usage.prompt_tokens, usage.completion_tokens];

function chat(more = {}, given = client) {
  return given.chat.completions.create({ model, messages, ...more });
}

const cases = {
  async plain() {
    const found = await chat();
    return { text: found.choices[0].message.content, usage: usageOf(found.usage) };
  },
  async stream() {
    const parts = [];
    let usage;
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
      parts.push(...chunk.choices.map((choice) => choice.delta.content).filter(Boolean));
      usage = chunk.usage || usage;
    }
    return { text: parts.join(""), parts: parts.length, usage: usageOf(usage) };
  },
  async tools() {
    const { message } = (await chat({ tools })).choices[0];
    const [call] = message.tool_calls;
    const result = { role: "tool", tool_call_id: call.id, content: "It rains." };
    const end = await chat({ tools, messages: [...messages, message, result] });
    return { tool: call.function.name, arguments: JSON.parse(call.function.arguments), text: end.choices[0].message.content };
  },
  async tools_stream() {
    const calls = [];
    for await (const chunk of await chat({ tools, stream: true })) {
      calls.push(...chunk.choices.flatMap((choice) => choice.delta.tool_calls || []));
    }
    return { tool: calls[0].function.name, arguments: JSON.parse(calls.map((call) => call.function.arguments || "").join("")) };
  },
  async schema() {
    const wanted = { type: "json_schema", json_schema: { name: "place", schema: place, strict: true } };
    return { data: JSON.parse((await chat({ response_format: wanted })).choices[0].message.content) };
  },
  async responses() {
    const found = await client.responses.create({ model, input: "Hello" });
    return { text: found.output_text, usage: [found.usage.input_tokens, found.usage.output_tokens] };
  },
  async responses_stream() {
    const parts = [];
    let end;
    for await (const event of await client.responses.create({ model, input: "Hello", stream: true })) {
      if (event.type === "response.output_text.delta") parts.push(event.delta);
      end = event.response;
    }
    return { text: parts.join(""), parts: parts.length, usage: [end.usage.input_tokens, end.usage.output_tokens] };
  },
  async leave() {
    const found = await chat({ stream: true, max_tokens: 1000 });
    for await (const chunk of found) break;
    return { left: "closed" };
  },
  async leave_plain() {
    return chat({ max_tokens: 1000 }, client.withOptions({ timeout: 1000, maxRetries: 0 }));
  },
  async models() {
    const listed = await client.models.list();
    return { models: listed.data.map((entry) => entry.id), one: (await client.models.retrieve(model)).id };
  },
  unknown_model: () => chat({ model: "unknown" }),
  embeddings: () => client.embeddings.create({ model, input: "Hello" }),
  wrong_key: () => chat({}, client.withOptions({ apiKey: "sk-wrong" })),
};

async function answer(name) {
  try {
    return await cases[name]();
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? null, body: error.error ?? null, message: error.message };
  }
}

(async () => {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line.trim()))}\n`);
  }
})();
