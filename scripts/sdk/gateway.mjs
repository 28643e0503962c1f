// What the tests know about the gateway, from the Go test that runs them.
export const gateway = JSON.parse(process.env.GATEWAY)

// failure returns the error that a promise is rejected with.
export async function failure(promise) {
  try {
    await promise
  } catch (error) {
    return error
  }
  throw new Error('want an error')
}
