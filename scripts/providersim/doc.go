// Package providersim plays a model provider for development, tests and chaos
// runs. One handler answers the public formats of text generation (chat,
// responses, messages), image generation and video jobs, as JSON and as event
// streams, and keeps a journal of every request it received.
//
// It is strict: a credential is demanded, and a request that the public format
// would refuse (unknown parameter, wrong type, missing member, missing version
// header) is refused in that format's own error envelope. It is deterministic:
// the usage it reports follows from the bytes of the request, see
// [PromptTokens] and [Predict].
//
// What an answer does is steered per request by directives. They stand behind
// an @ in the model name, as in
//
//	sim-chat@delay=50ms,chunk=20ms,out=100
//
// or come from a rule added with [Sim.AddRule] for tests that cannot choose the
// model name; where both name the same directive, the rule wins. Values are
// URL-escaped. [Directives] lists all of them. A directive that does not exist
// is refused with a 400, so that a misspelt test fails.
//
// The package does not imitate the quality of any model, holds no
// conversation state, and imports the standard library only, so that every
// module may start it inside its tests:
//
//	sim := providersim.New(providersim.Config{})
//	srv := httptest.NewServer(sim)
//	defer srv.Close()
//	defer sim.Close() // first: ends requests that hang
//
// Invariants: an entry of the journal is complete before the last byte of its
// answer leaves, so whoever has read a whole answer finds it in the journal;
// usage enters the journal only after the bytes that carry it were accepted by
// the connection.
package providersim
