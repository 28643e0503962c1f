import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema'
import { check, count, failure, faults, finish, model, parameters, prompt, weather } from './task.mjs'

const body = { max_tokens: 1000, messages: [{ role: 'user', content: prompt }] }
const tool = betaTool({ name: 'weather', description: 'Tells the weather.', inputSchema: parameters, run: weather })
for (const stream of [false, true]) {
  let last
  // The runner asks for a thread first and goes on without one.
  for await (const turn of client.beta.messages.toolRunner({ model, ...body, tools: [tool], stream })) {
    last = stream ? await turn.finalMessage() : turn
    count(last.usage.input_tokens, last.usage.output_tokens)
  }
  check(last.content[0].text)
}

const once = client.withOptions({ maxRetries: 0 })
await client.withOptions({ maxRetries: 5 }).messages.create({ model: faults.limited, ...body })
await failure(once.messages.create({ model: faults.failing, ...body }), Anthropic.InternalServerError, 502)
await failure(once.messages.stream({ model: faults.broken, ...body }).finalMessage(), Anthropic.APIError)
finish()
