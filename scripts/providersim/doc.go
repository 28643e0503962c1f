// Package providersim simulates a model provider for development, tests and chaos tests.
// One handler answers the public formats of text generation (chat, responses, messages),
// image generation and video jobs, as JSON and as event streams, and keeps a journal of all
// requests.
//
// It is strict: a request needs a credential, and a request that the public format does not
// allow (unknown parameter, wrong type, missing member, missing version header) is refused
// in the error envelope of the format. It is deterministic: the reported usage follows from
// the bytes of the request, see [PromptTokens] and [Predict].
//
// Directives control the answer to a request. They are in the model name after an @, as in
//
//	sim-chat@delay=50ms,chunk=20ms,out=100
//
// or in a rule added with [Sim.AddRule], for tests that cannot choose the model name. A
// directive of a rule takes precedence over the same one in the model name. Values are
// URL-escaped. [Directives] lists all of them. An unknown directive is answered with 400, so
// that a test with a misspelt one fails.
//
// The package does not imitate the output of a model and keeps no conversations. It imports
// the standard library only, so that the tests of every module can start it:
//
//	sim := providersim.New(providersim.Config{})
//	srv := httptest.NewServer(sim)
//	defer srv.Close()
//	defer sim.Close() // before srv.Close, because it ends hanging requests
//
// Invariants:
//
//   - A journal entry is complete before the last byte of its answer is sent, so a client
//     that has read the answer finds the entry.
//   - Usage is recorded in the journal after the connection has accepted the bytes of it.
package providersim
