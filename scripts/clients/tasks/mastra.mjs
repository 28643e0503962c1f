import { createTool } from '@mastra/core/tools'
import { z } from 'zod'
import { check, count, finish, model, prompt, weather } from './task.mjs'

const tools = {
  weather: createTool({ id: 'weather', description: 'Tells the weather.', inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => weather({ city }) }),
}
for (const chosen of [openai.chat(model), openai(model)]) {
  const agent = new Agent({ id: 'guide', name: 'Guide', instructions: 'Be brief.', model: chosen, tools })
  const { text, totalUsage } = await agent.generate(prompt, { maxSteps: 3, providerOptions: { openai: { store: false } } })
  check(text)
  count(totalUsage.inputTokens, totalUsage.outputTokens)
}
finish()
