// Package proxybench compares the cost of the data plane with that of a minimal proxy in
// Go, which reads the prompt, forwards it with the transport of net/http, and copies the
// answer. The gateway also authenticates, reserves cost, writes usage to disk, publishes
// it, and logs.
//
// Both proxies serve the same load alternately in one run, with a provider that answers
// from memory. The result is the CPU time of the process per request or event, as the
// scheduler counts it, because rates and latencies depend on the other processes of the
// machine. Only ratios within one run are reliable, and differences below 10 % are noise.
// For many concurrent streams the result is the peak memory of the process.
//
// Other gateways that a person has started, peers, can take part. They need the model bench
// and the bench's provider, whose address can be chosen.
package proxybench
