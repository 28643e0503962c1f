import OpenAI from 'openai'

const client = new OpenAI({ baseURL: 'https://HOST/v1', apiKey: process.env.MGW_API_KEY })
const answer = await client.responses.create({ model: 'MODEL', input: 'Hello' })
console.log(answer.output_text)
