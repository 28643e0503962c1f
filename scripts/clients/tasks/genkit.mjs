import { z } from 'genkit'
import { check, count, finish, model, prompt, weather } from './task.mjs'

const tool = ai.defineTool({ name: 'weather', description: 'Tells the weather.', inputSchema: z.object({ city: z.string() }), outputSchema: z.string() }, async (input) => weather(input))
const outcome = await ai.generate({ model: `mgw/${model}`, prompt, tools: [tool], returnToolRequests: true })
count(outcome.usage.inputTokens, outcome.usage.outputTokens)
const second = await ai.generate({
  model: `mgw/${model}`,
  messages: [...outcome.messages, { role: 'tool', content: outcome.toolRequests.map(({ toolRequest }) => ({ toolResponse: { name: toolRequest.name, ref: toolRequest.ref, output: weather(toolRequest.input) } })) }],
  tools: [tool],
})
check(second.text)
count(second.usage.inputTokens, second.usage.outputTokens)
finish()
