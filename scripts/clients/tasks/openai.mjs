import { check, count, failure, faults, finish, model, parameters, prompt, weather } from './task.mjs'

const messages = [{ role: 'user', content: prompt }]
const tools = [{ type: 'function', function: { name: 'weather', parameters, parse: JSON.parse, function: weather } }]
for (const more of [{}, { stream: true, stream_options: { include_usage: true } }]) {
  const runner = client.chat.completions.runTools({ model, messages, tools, ...more })
  check(await runner.finalContent())
  const usage = await runner.totalUsage()
  count(usage.prompt_tokens, usage.completion_tokens)
}
for (const ask of [(body) => client.responses.create(body), (body) => client.responses.stream(body).finalResponse()]) {
  const input = [{ role: 'user', content: prompt }]
  let text = ''
  while (!text) {
    const response = await ask({ model, input, tools: [{ type: 'function', name: 'weather', parameters, strict: true }] })
    count(response.usage.input_tokens, response.usage.output_tokens)
    for (const item of response.output) {
      input.push(item)
      if (item.type === 'function_call') input.push({ type: 'function_call_output', call_id: item.call_id, output: weather(JSON.parse(item.arguments)) })
    }
    text = response.output_text
  }
  check(text)
}

const once = client.withOptions({ maxRetries: 0 })
const all = async (stream) => { for await (const _ of await stream); }
await client.withOptions({ maxRetries: 5 }).chat.completions.create({ model: faults.limited, messages })
await failure(once.chat.completions.create({ model: faults.failing, messages }), OpenAI.InternalServerError, 502)
await failure(all(once.chat.completions.create({ model: faults.broken, messages, stream: true })), OpenAI.APIError)
await failure(all(once.responses.create({ model: faults.failed, input: prompt, stream: true })), OpenAI.APIError)
finish()
