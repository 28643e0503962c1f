import { tool } from 'langchain'
import { z } from 'zod'
import { check, count, finish, model, prompt, weather } from './task.mjs'

const tools = [tool(weather, { name: 'weather', description: 'Tells the weather.', schema: z.object({ city: z.string() }) })]
const worker = createDeepAgent({ model: new ChatOpenAI({ model, apiKey: process.env.MGW_API_KEY, configuration: { baseURL: `${process.env.HOST}/v1` } }), tools })
const { messages: made } = await worker.invoke({ messages: [{ role: 'user', content: prompt }] })
check(made.at(-1).content)
for (const { usage_metadata: usage } of made) if (usage) count(usage.input_tokens, usage.output_tokens)
finish()
