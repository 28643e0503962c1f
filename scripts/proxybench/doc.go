// Package proxybench measures what the data plane costs against the least proxy
// that there can be in Go: one that reads the prompt, sends it on with
// net/http's transport, and copies the answer. The gateway authenticates,
// holds money, writes usage to disk, publishes it and logs meanwhile.
//
// Both serve the same load in turn, A B A B, in one run, against a provider
// that answers from memory. The figure is the CPU time of the process for each
// request or event, as the scheduler counts it: on a machine that does other
// things as well, rates and latencies say little. Even so, only ratios of one
// run are to be trusted, and a difference below a tenth is none. For many
// streams at once the figure is the most memory that the process has used.
package proxybench
