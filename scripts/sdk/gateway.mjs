// The address and key of the gateway, from the Go test that runs these tests.
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
