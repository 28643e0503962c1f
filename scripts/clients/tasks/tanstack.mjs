import { toolDefinition } from '@tanstack/ai'
import { z } from 'zod'
import { check, count, finish, model, prompt, weather } from './task.mjs'

const tool = toolDefinition({ name: 'weather', description: 'Tells the weather.', inputSchema: z.object({ city: z.string() }) }).server(weather)
const adapter = createOpenaiChat(model, process.env.MGW_API_KEY, { baseURL: `${process.env.HOST}/v1` })
let text = ''
for await (const chunk of chat({ adapter, messages: [{ role: 'user', content: prompt }], tools: [tool] })) {
  if (chunk.type === 'TEXT_MESSAGE_CONTENT') text += chunk.delta
  if (chunk.type === 'RUN_FINISHED' && chunk.usage) count(chunk.usage.promptTokens, chunk.usage.completionTokens)
}
check(text)
finish()
