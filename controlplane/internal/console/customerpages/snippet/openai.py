import os

from openai import OpenAI

client = OpenAI(base_url="https://HOST/v1", api_key=os.environ["MGW_API_KEY"])
answer = client.chat.completions.create(model="MODEL", messages=[{"role": "user", "content": "Hello"}])
print(answer.choices[0].message.content)
